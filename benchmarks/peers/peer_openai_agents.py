"""The same work on openai-agents: a model of its own kind, its events streamed, tracing off."""

# pyright: basic, reportMissingImports=false
# Its libraries live in an environment of its own, which the type checker does not see.

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agents import Agent, Model, RunConfig, Runner, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)
from work import PIECES, TEXT, Count, measure


class Scripted(Model):
    """Plays the script."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.turn = 0

    async def get_response(self, *_: Any, **__: Any) -> Any:
        """Refuse: this model only streams."""
        msg = "this model only streams"
        raise RuntimeError(msg)

    async def stream_response(
        self, *_: Any, **__: Any
    ) -> AsyncIterator[ResponseTextDeltaEvent | ResponseCompletedEvent]:
        """Stream one response."""
        self.turn += 1
        response = Response(
            id=f"response-{self.turn}",
            created_at=0,
            model="scripted",
            object="response",
            output=[_said(), self._call()] if self.turn < self.turns else [_said()],
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=False,
        )
        for number, piece in enumerate(PIECES):
            yield _delta(number, piece)
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=len(PIECES))

    def _call(self) -> ResponseFunctionToolCall:
        return ResponseFunctionToolCall(
            arguments=f'{{"a": {self.turn}, "b": 1}}', call_id=f"call-{self.turn}", name="add", type="function_call"
        )


def _delta(number: int, piece: str) -> ResponseTextDeltaEvent:
    return ResponseTextDeltaEvent(
        type="response.output_text.delta",
        delta=piece,
        item_id="m",
        output_index=0,
        content_index=0,
        logprobs=[],
        sequence_number=number,
    )


def _said() -> ResponseOutputMessage:
    text = ResponseOutputText(text=TEXT, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")


def prepare(turns: int, count: Count) -> Callable[[], Awaitable[str]]:
    """Make one run."""

    @function_tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return await count.add(a, b)

    agent = Agent(name="count", model=Scripted(turns), tools=[add])

    async def run() -> str:
        config = RunConfig(tracing_disabled=True)
        result = Runner.run_streamed(agent, "count", max_turns=turns + 1, run_config=config)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return run


if __name__ == "__main__":
    measure("openai-agents", prepare)
