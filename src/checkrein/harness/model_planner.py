"""A model as the planner of a session: a planning is one response, and its calls are the steps.

The model is a coprocessor. It is asked once per attempt and runs nothing; its calls become one batch of a plan that is not final, so hooks, policy, budget, approvals and
the log treat them like the steps of any plan, and the next planning answers with their results. A response without calls is a final plan of one step, which ends with
the text. The invariant: a plan comes only from a response that is complete, agrees with its stream and is within the limits; everything else is `PlannerFailed`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from checkrein.errors import ModelError
from checkrein.harness.asking import Drafted, PlanningRequest
from checkrein.harness.planners import Plan, PlannerFailed, Step
from checkrein.loop.compaction import Compaction
from checkrein.loop.options import ModelLimits
from checkrein.loop.request import Answer, ResponseCollector
from checkrein.loop.summary import Summary, SummaryAsked, read_response, summarise
from checkrein.messages import ToolCall, Usage
from checkrein.ports.model import Chunk, Model, ModelRequest, ToolSchema
from checkrein.ports.tool import CancelSignal, Tool
from checkrein.values import JsonObject

__all__ = ["ModelPlanner", "OnChunk"]

OnChunk: TypeAlias = Callable[[Chunk, int], None]
"""Told each chunk of a response as it comes, and the attempt it belongs to; a new attempt makes the chunks of the one before void."""

_LIMITS: Final = ModelLimits()


class ModelPlanner:
    """Plans a session with a model.

    It keeps nothing between two plannings: what the model is told is folded from the session's log, so a planner can be replaced at any time, also by one of another
    kind, and a session that goes on in another process asks nothing twice.

    Args:
        model: answers the requests.
        settings: the provider's settings for each request.
        tools: what the model may call; None for the tools of the session.
        limits: what one response may hold.
        on_chunk: told each chunk; what it raises is reported to the event loop and changes nothing.
        compaction: when and how the transcript is made shorter than the model's window; None goes by the model's own `context_window`, and without one nothing is
            made shorter.

    Raises:
        InvalidJson: on creation, when the settings have no JSON form.
    """

    def __init__(
        self,
        model: Model,
        *,
        settings: Mapping[str, object] | None = None,
        tools: Iterable[Tool | ToolSchema] | None = None,
        limits: ModelLimits = _LIMITS,
        on_chunk: OnChunk | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        self._compaction = compaction
        self._is_window_known = compaction is not None
        self._model = model
        self._settings = JsonObject(settings)
        self._tools = None if tools is None else tuple(map(_schema, tools))
        self._limits = limits
        self._on_chunk = on_chunk

    @property
    def compaction(self) -> Compaction | None:
        """When and how the transcript is made shorter; None never. The model is asked for its window when that is first wanted: it may have to look it up."""
        if not self._is_window_known:
            self._compaction, self._is_window_known = Compaction.of(self._model), True
        return self._compaction

    async def draft(self, request: PlanningRequest) -> Drafted:
        """Ask the model once and return its response as a plan.

        Raises:
            PlannerFailed: it brought no usable response; says with the code why, whether asking again may succeed, and what was consumed.
            asyncio.CancelledError: the answer is not wanted any more.
        """
        asked = ModelRequest(
            f"request-{request.turn:03}",
            await request.read_transcript(),
            self.offered(request.read_tools()),
            self._settings,
        )
        answer, usage = await self.ask(asked, request)
        return Drafted(_plan(answer, request.turn), answer.message, usage)

    async def ask(self, asked: ModelRequest, request: PlanningRequest) -> tuple[Answer, Usage]:
        """Ask the model once; return its answer, and what it consumed.

        Raises:
            PlannerFailed: as `draft`.
            asyncio.CancelledError: the answer is not wanted any more.
        """
        collector = ResponseCollector(asked, self._limits, self._publisher(request.attempt))
        try:
            await read_response(self._model, asked, request.signal, collector)
            return collector.finished(), _usage(collector)
        except ModelError as error:
            raise PlannerFailed(
                f"{error.code}: {error}",
                is_transient=error.is_transient,
                usage=_usage(collector),
                retry_after=error.retry_after,
                code=error.code,
            ) from error

    def offered(self, tools: tuple[ToolSchema, ...]) -> tuple[ToolSchema, ...]:
        """Return the tools that the model is told of, in a session that has these."""
        return tools if self._tools is None else self._tools

    async def summarise(self, asked: SummaryAsked, signal: CancelSignal) -> Summary:
        """Ask the model once for a summary of old turns.

        Raises:
            asyncio.CancelledError: it is not wanted any more.
        """
        return await summarise(self._model, asked, signal)

    def _publisher(self, attempt: int) -> Callable[[str, Chunk], None]:
        tell = self._on_chunk

        def publish(_request_id: str, chunk: Chunk) -> None:
            if tell is None:
                return
            try:
                tell(chunk, attempt)
            except Exception as error:  # noqa: BLE001  who only looks on must not change what is planned
                context = {"message": "who was told a model's chunk failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

        return publish


def _usage(collector: ResponseCollector) -> Usage:
    return Usage() if collector.response is None else collector.response.usage


def _schema(tool: Tool | ToolSchema) -> ToolSchema:
    return tool if isinstance(tool, ToolSchema) else ToolSchema(tool.name, tool.description, tool.schema)


def _plan(answer: Answer, turn: int) -> Plan:
    """Return a response as a plan; the id of a call, which is unique in its response, is the id of its step."""
    if answer.calls:
        return Plan([_step(call, turn) for call in answer.calls], final=False)
    return Plan([Step(id=f"answer-{turn}", description="answer", answer=answer.text)])


def _step(call: ToolCall, turn: int) -> Step:
    return Step(
        id=call.id,
        description=f"call {call.name}",
        tool_name=call.name,
        arguments=call.arguments,
        batch=f"turn-{turn}",
        malformed=call.malformed,
    )
