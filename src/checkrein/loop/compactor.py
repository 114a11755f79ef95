"""A model in front of a model: keeps the requests of one agent within the window, by a summary in the place of the oldest turns.

The agent's transcript stays whole; only what is sent is shorter. It stands where the model stands and not in a transform of the context, because a summary is a request
too: one that fails has the model's own code, is made again as the agent's `retry` says, and what it consumed is counted. The invariant: what is sent begins with the
first message, holds the newest turns as they are, and its summary stands for exactly the messages between.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec

from checkrein.clock import spawn
from checkrein.errors import ModelError
from checkrein.loop.asking import close_later
from checkrein.loop.compaction import (
    CONTEXT_CODE,
    Compaction,
    Cut,
    choose_cut,
    fruitless,
    goal_length,
    sum_of,
    turn_ends,
)
from checkrein.loop.options import AgentHooks, TurnSettings
from checkrein.loop.summary import SummaryAsked, summarise
from checkrein.messages import AssistantMessage, Message, Usage, UserMessage
from checkrein.ports.model import Chunk, Model, ModelRequest, ModelResponse, ModelStream
from checkrein.ports.tool import CancelSignal

__all__ = ["CompactingModel"]


class _Replaced(msgspec.Struct, frozen=True):
    """What a summary stands for.

    Attributes:
        at: how many messages of the transcript are gone, but for the goal.
        goal: the first message, when it stays.
        last: the last of those messages, by which the transcript is known again.
        summary: what stands in their place.
    """

    at: int
    goal: tuple[Message, ...]
    last: Message
    summary: UserMessage

    def fits(self, messages: Sequence[Message]) -> bool:
        """Tell whether the messages are of the transcript that was summarised."""
        return (
            len(messages) >= self.at
            and messages[self.at - 1] == self.last
            and tuple(messages[: len(self.goal)]) == self.goal
        )

    def sent(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return what is sent of the transcript."""
        return (*self.goal, self.summary, *messages[self.at :])


class _Counted(msgspec.Struct, frozen=True):
    """What a provider said of the size of a request and its answer: the number of messages of the transcript, the answer, and the tokens."""

    length: int
    answer: AssistantMessage
    tokens: int

    def fits(self, messages: Sequence[Message]) -> bool:
        """Tell whether that answer was adopted; what was dropped with its turn counts nothing."""
        if len(messages) < self.length:
            return False
        there = messages[self.length - 1]
        return isinstance(there, AssistantMessage) and there.content == self.answer.content


class CompactingModel:
    """A model for one agent, whose requests never outgrow its window.

    Give it to an agent as its model, or its `hooks()` to an agent with another. It keeps one summary and looks only at what is sent; used by several agents it is right
    too, but writes more summaries. While a summary is written the agent's stream is silent, so an `idle_timeout_seconds` must be longer than that takes.

    Args:
        model: answers the requests, and writes the summaries unless `summariser` does.
        compaction: when and how; None goes by the model's own `context_window`, and without one every request is sent as it is.
        summariser: writes the summaries.

    Attributes:
        compactions: how many summaries took the place of turns.
        usage: what all requests for summaries consumed; it is also part of the usage of the responses that came after them.
    """

    def __init__(self, model: Model, compaction: Compaction | None = None, *, summariser: Model | None = None) -> None:
        self.compactions = 0
        self.usage = Usage(cost=0.0)
        self._model = model
        self._compaction = compaction
        self._is_window_known = compaction is not None
        self._summariser = summariser or model
        self._replaced: _Replaced | None = None
        self._counted: _Counted | None = None
        self._owed = Usage()

    @property
    def compaction(self) -> Compaction | None:
        """When and how requests are made shorter; None never. The model is asked for its window when that is first wanted: it may have to look it up."""
        if not self._is_window_known:
            self._compaction, self._is_window_known = Compaction.of(self._model), True
        return self._compaction

    def hooks(self) -> AgentHooks:
        """Return the hooks with which an agent uses this model for every turn."""
        chosen = TurnSettings(model=self)

        def prepare_turn(_step: int) -> TurnSettings:
            return chosen

        return AgentHooks(prepare_turn=prepare_turn)

    async def stream(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        """Answer a request with the model, after making it short enough.

        Raises:
            ModelError: from the iterator: as the model; `MODEL_CONTEXT` when summaries were of no use, or nothing can be summarised and the model refuses the request.
        """
        compaction = self.compaction
        sent = request if compaction is None else await self._within_window(request, signal, compaction)
        stream: ModelStream | None = None
        has_begun = False
        try:
            try:
                stream = self._model.stream(sent, signal)
                async for item in stream:
                    has_begun = True
                    yield self._told(item, request)
            except ModelError as error:
                if has_begun or error.code != CONTEXT_CODE or compaction is None:
                    raise
                sent = await self._within_window(request, signal, compaction, refusal=error)
                stream = self._model.stream(sent, signal)
                async for item in stream:
                    yield self._told(item, request)
        except GeneratorExit:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
            raise
        except BaseException:
            close_later(stream, signal, spawn)
            raise

    def _told(self, item: Chunk | ModelResponse, request: ModelRequest) -> Chunk | ModelResponse:
        """Return an item as the agent gets it: the response with what its summaries consumed."""
        if not isinstance(item, ModelResponse):
            return item
        tokens = item.usage.total_tokens
        self._counted = _Counted(len(request.messages) + 1, item.message, tokens) if tokens else None
        owed, self._owed = self._owed, Usage()
        return item if owed == Usage() else msgspec.structs.replace(item, usage=sum_of(owed, item.usage))

    def _sent(self, messages: Sequence[Message]) -> Sequence[Message]:
        if self._replaced is not None and not self._replaced.fits(messages):
            self._replaced = None
        if self._counted is not None and not self._counted.fits(messages):
            self._counted = None
        return messages if self._replaced is None else self._replaced.sent(messages)

    async def _within_window(
        self, request: ModelRequest, signal: CancelSignal, compaction: Compaction, *, refusal: ModelError | None = None
    ) -> ModelRequest:
        """Return the request as it is sent.

        Raises:
            ModelError: no summary could be had, or none was of use.
        """
        sent = self._sent(request.messages)
        if refusal is not None or self._size(request, sent, compaction) > compaction.limit:
            cut = choose_cut(
                sent, turn_ends(sent), compaction, first=goal_length(request.messages), is_forced=refusal is not None
            )
            if cut is not None:
                sent = await self._shortened(request, cut, signal, compaction)
            elif refusal is not None:
                raise refusal
        return request if sent is request.messages else msgspec.structs.replace(request, messages=sent)

    def _size(self, request: ModelRequest, sent: Sequence[Message], compaction: Compaction) -> int:
        counted = self._counted
        known = (0, 0) if counted is None else (len(sent) - len(request.messages) + counted.length, counted.tokens)
        return compaction.size_of(sent, request.tools, known)

    async def _shortened(
        self, request: ModelRequest, cut: Cut, signal: CancelSignal, compaction: Compaction
    ) -> Sequence[Message]:
        """Return what is sent once a summary stands for what was cut.

        Raises:
            ModelError: none could be had, or none was of use.
        """
        number, reasons = self.compactions + 1, list[str]()
        before = 0 if self._replaced is None else self._replaced.at - len(self._replaced.goal) - 1
        while len(reasons) < compaction.tries:
            tried = len(reasons)
            request_id = f"{request.id}-summary-{number}.{tried + 1}"
            asked = SummaryAsked(request_id, f"summary-{number}", cut, compaction, tried)
            summary = await summarise(self._summariser, asked, signal)
            self._owed, self.usage = sum_of(self._owed, summary.usage), sum_of(self.usage, summary.usage)
            if summary.error is not None:
                raise summary.error
            if summary.message is not None:
                at = cut.at + before
                self._replaced = _Replaced(at, cut.goal, request.messages[at - 1], summary.message)
                self._counted = None
                self.compactions = number
                return self._replaced.sent(request.messages)
            reasons.append(summary.useless)
        raise fruitless(reasons)
