"""Reading one whole response of a model, and asking one for a summary.

A summary is a response like any other: its stream must be whole and agree with itself. One that was cut off, says nothing or calls tools is of no use, which is an answer
and not an error; a model that is busy, unreachable or refuses us is.
"""

import asyncio
from typing import Final

import msgspec

from checkrein.clock import spawn
from checkrein.errors import ModelError
from checkrein.loop.asking import close_later
from checkrein.loop.compaction import CONTEXT_CODE, Compaction, Cut, summary_message, summary_request
from checkrein.loop.options import ModelLimits
from checkrein.loop.request import ResponseCollector
from checkrein.messages import Usage, UserMessage
from checkrein.ports.model import Chunk, Model, ModelRequest, ModelStream
from checkrein.ports.tool import CancelSignal
from checkrein.tools.results import describe_error

__all__ = ["Summary", "SummaryAsked", "read_response", "summarise"]

_USELESS: Final = frozenset({"MODEL_OUTPUT_LIMIT", "MODEL_EMPTY", "MODEL_LIMIT", CONTEXT_CODE})
_LIMITS: Final = ModelLimits()


class SummaryAsked(msgspec.Struct, frozen=True):
    """What is asked for.

    Attributes:
        request_id: the id of the request.
        message_id: the id of the message that the summary becomes.
        cut: what is to be summarised.
        compaction: how.
        tried: how many tries of no use there were.
    """

    request_id: str
    message_id: str
    cut: Cut
    compaction: Compaction
    tried: int = 0


class Summary(msgspec.Struct, frozen=True):
    """What came of asking for a summary.

    Attributes:
        message: the summary, when it is of use.
        usage: what was consumed, in any case.
        useless: why it is of no use, in words; `""` when it is or when there is an error.
        error: why there is none at all.
    """

    message: UserMessage | None = None
    usage: Usage = Usage()
    useless: str = ""
    error: ModelError | None = None


async def read_response(
    model: Model, request: ModelRequest, signal: CancelSignal, collector: ResponseCollector
) -> None:
    """Read the whole stream of a model that answers a request.

    Raises:
        ModelError: it failed, or gave what may not be.
        asyncio.CancelledError: the answer is not wanted any more.
    """
    stream: ModelStream | None = None
    try:
        stream = model.stream(request, signal)
        async for item in stream:
            if signal.is_cancelled:
                raise asyncio.CancelledError(signal.reason)  # noqa: TRY301  a stream is left the same way whoever cancels
            collector.take(item)
    except GeneratorExit:
        raise
    except BaseException as error:
        close_later(stream, signal, spawn)
        if isinstance(error, ModelError) or not _is_models_own(error, signal):
            raise
        raise ModelError(f"the model's stream failed: {describe_error(error)}", is_transient=True) from error


def _is_models_own(error: BaseException, signal: CancelSignal) -> bool:
    """Tell whether an error is what the model's code raised by itself: neither an interrupt of the program, nor a cancellation of the work."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return not signal.is_cancelled and (task is None or not task.cancelling())
    return isinstance(error, (Exception, SystemExit))


async def summarise(model: Model, asked: SummaryAsked, signal: CancelSignal) -> Summary:
    """Ask a model once for a summary.

    Raises:
        asyncio.CancelledError: it is not wanted any more.
    """
    question = summary_request(asked.cut, asked.compaction, tried=asked.tried)
    request = ModelRequest(asked.request_id, (question,), (), asked.compaction.settings)
    collector = ResponseCollector(request, _LIMITS, _unheard)
    try:
        await read_response(model, request, signal, collector)
        answer = collector.finished()
    except ModelError as error:
        if error.code in _USELESS:
            return Summary(usage=_usage(collector), useless=f"{error.code}: {error}")
        return Summary(usage=_usage(collector), error=error)
    usage = _usage(collector)
    if answer.calls:
        return Summary(usage=usage, useless="it called tools, and there are none")
    if collector.response is not None and collector.response.stop_reason == "refusal":
        return Summary(usage=usage, useless="the model refused to write one")
    message = summary_message(asked.message_id, answer.text.strip())
    useless = asked.cut.objection_to(message, asked.compaction)
    return Summary(None if useless else message, usage, useless)


def _usage(collector: ResponseCollector) -> Usage:
    return Usage() if collector.response is None else collector.response.usage


def _unheard(_request_id: str, _chunk: Chunk) -> None:
    """Tell nobody: a summary is no part of the conversation."""
