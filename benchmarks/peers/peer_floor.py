"""The floor: the loop that one would write by hand, with nothing that a contract would add.

An async generator for the model, a dict of tools, a list for the transcript, one frozen record per event.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from work import Count, measure


@dataclass(frozen=True)
class Call:
    """What the model asks for."""

    id: str
    name: str
    arguments: dict[str, int]


@dataclass(frozen=True)
class Message:
    """One message of the transcript."""

    role: str
    content: object


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    sequence: int
    type: str
    data: object


async def model(messages: list[Message], turns: int) -> AsyncIterator[Call | str]:
    """Stream one response."""
    turn = len(messages) // 2 + 1
    yield Call(f"call-{turn}", "add", {"number": turn}) if turn < turns else "done"


def prepare(turns: int, count: Count) -> Callable[[], Awaitable[str]]:
    """Make one run."""
    tools: dict[str, Callable[..., Awaitable[int]]] = {"add": count.add}

    async def run() -> str:
        messages = [Message("user", "count")]
        events = [Event(0, "message.accepted", messages[0])]

        def tell(kind: str, data: object) -> None:
            events.append(Event(len(events), kind, data))

        while True:
            answer: Call | str = ""
            async for chunk in model(messages, turns):
                tell("model.chunk", chunk)
                answer = chunk
            messages.append(Message("assistant", answer))
            if isinstance(answer, str):
                tell("run.finished", answer)
                return answer
            tell("tool.started", answer)
            result = await tools[answer.name](**answer.arguments)
            messages.append(Message("tool", (answer.id, str(result))))
            tell("tool.finished", result)

    return run


if __name__ == "__main__":
    measure("", prepare)
