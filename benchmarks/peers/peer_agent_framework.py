"""The same work on agent-framework-core: a chat client of its own, its updates streamed."""

# pyright: basic, reportMissingImports=false
# Its libraries live in an environment of its own, which the type checker does not see.

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)
from work import PIECES, Count, measure


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """Plays the script."""

    def __init__(self, turns: int) -> None:
        super().__init__(function_invocation_configuration={"max_iterations": turns + 1})
        self.turns = turns
        self.turn = 0

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> ResponseStream[ChatResponseUpdate, ChatResponse]:
        del messages, stream, options
        return ResponseStream(self._play(), finalizer=ChatResponse.from_updates)

    async def _play(self) -> AsyncIterator[ChatResponseUpdate]:
        self.turn += 1
        contents = [Content.from_text(piece) for piece in PIECES]
        if self.turn < self.turns:
            arguments = f'{{"a": {self.turn}, "b": 1}}'
            contents.append(Content.from_function_call(f"call-{self.turn}", "add", arguments=arguments))
        for content in contents:
            yield ChatResponseUpdate(role="assistant", contents=[content], message_id=f"message-{self.turn}")


def prepare(turns: int, count: Count) -> Callable[[], Awaitable[str]]:
    """Make one run."""

    @tool(approval_mode="never_require")
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return await count.add(a, b)

    agent = Agent(client=Scripted(turns), tools=[add])

    async def run() -> str:
        text = ""
        async for update in agent.run("count", stream=True):
            text = text + update.text if update.role == "assistant" else ""
        return text

    return run


if __name__ == "__main__":
    measure("agent-framework-core", prepare)
