"""The floor: the loop that one would write by hand, with nothing that a contract would add.

An async generator for the model, a dict of tools, a list for the transcript, one frozen record per event.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from work import PIECES, TEXT, Count, measure


@dataclass(frozen=True)
class Piece:
    """A part of a response as it comes."""

    request_id: str
    delta: str


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


async def model(turn: int, turns: int) -> AsyncIterator[Piece | Call | Message]:
    """Stream one response."""
    for piece in PIECES:
        yield Piece(f"request-{turn}", piece)
    calls = [Call(f"call-{turn}", "add", {"a": turn, "b": 1})] if turn < turns else []
    for call in calls:
        yield call
    yield Message("assistant", (TEXT, *calls))


def prepare(turns: int, count: Count) -> Callable[[], Awaitable[str]]:
    """Make one run."""
    tools: dict[str, Callable[..., Awaitable[int]]] = {"add": count.add}

    async def run() -> str:
        messages = [Message("user", "count")]
        events = [Event(0, "message.accepted", messages[0])]

        def tell(kind: str, data: object) -> None:
            events.append(Event(len(events), kind, data))

        text = ""
        for turn in range(1, turns + 1):
            text, calls = "", list[Call]()
            async for item in model(turn, turns):
                if isinstance(item, Message):
                    messages.append(item)
                    continue
                if isinstance(item, Call):
                    calls.append(item)
                else:
                    text += item.delta
                tell("model.chunk", item)
            for call in calls:
                tell("tool.started", call)
                result = await tools[call.name](**call.arguments)
                messages.append(Message("tool", (call.id, str(result))))
                tell("tool.finished", result)
        tell("run.finished", text)
        return text

    return run


if __name__ == "__main__":
    measure("", prepare)
