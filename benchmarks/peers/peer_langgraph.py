"""The same work on LangGraph: a graph of a model and a tool node, its messages streamed."""

# pyright: basic, reportMissingImports=false
# Its libraries live in an environment of its own, which the type checker does not see.

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from work import PIECES, Count, measure


class Scripted(BaseChatModel):
    """Plays the script."""

    turns: int
    turn: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], **_: Any) -> ChatResult:
        del messages
        msg = "this model only streams"
        raise RuntimeError(msg)

    async def _astream(self, messages: list[BaseMessage], **_: Any) -> AsyncIterator[ChatGenerationChunk]:
        del messages
        self.turn += 1
        number = self.turn
        for piece in PIECES:
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
        if number < self.turns:
            call = {"name": "add", "args": f'{{"a": {number}, "b": 1}}', "id": f"call-{number}", "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


def prepare(turns: int, count: Count) -> Callable[[], Awaitable[str]]:
    """Make one run."""

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return await count.add(a, b)

    model = Scripted(turns=turns)

    async def ask(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    agent = graph.compile()

    async def run() -> str:
        text = ""
        config = {"recursion_limit": 2 * turns + 10}
        async for chunk, _ in agent.astream({"messages": [("user", "count")]}, config, stream_mode="messages"):
            if chunk.type == "tool":
                text = ""
            else:
                text += chunk.content
        return text

    return run


if __name__ == "__main__":
    measure("langgraph", prepare)
