"""A server that speaks what a test tells it, over real sockets of this machine: for the clients of every wire.

Each request is answered with the next `Answer`; what a test did not expect is answered with status 500, which nobody takes for a response. The server ends with its `async
with`, whatever its clients do.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from checkrein.providers.stream import WireEvent

Ending = Literal["end", "cut", "reset", "hold"]
"""How an answer ends: properly; closed in the middle of the body; reset; or never."""
_MAX_BODY = 64 * 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """What one request gets: the pieces of the body one by one, then the ending."""

    pieces: tuple[bytes, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    ending: Ending = "end"
    content_type: str = "text/event-stream"
    silent: bool = False  # not even the head of a response comes


@dataclass(frozen=True)
class Received:
    """A request."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, object]


def sse(*events: WireEvent | Mapping[str, object] | str) -> bytes:
    """Return events as a server sends them; a mapping is the data of an event without a name, a text is its data as it is."""
    return b"".join(map(_sse, events))


def _sse(event: WireEvent | Mapping[str, object] | str) -> bytes:
    if isinstance(event, WireEvent):
        name, data = event.event, event.data
    else:
        name, data = "", event if isinstance(event, str) else json.dumps(event)
    lines = [f"event: {name}"] if name else []
    lines += [f"data: {line}" for line in data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode()


def error(status: int, said: Mapping[str, object] | str, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer that is an error, as providers send one."""
    text = said if isinstance(said, str) else json.dumps({"error": said})
    return Answer((text.encode(),), status, headers or {}, content_type="application/json")


class WireServer:
    """Answers requests in order.

    Attributes:
        received: every request so far.
        connections: how many there were.
        asked: set when the first request came.
        written: set when the first answer was written, but for its ending.
        url: its address.
    """

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._answers = list(answers)
        self._open: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.received: list[Received] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.written = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_MAX_BODY)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._over.set()
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            writer.close()
            self._open.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; tell whether the connection may take another."""
        self.received.append(await _read(reader))
        self.asked.set()
        answer = self._answers.pop(0) if self._answers else error(500, {"message": "nobody expected this request"})
        if answer.silent:
            await self._over.wait()
            return False
        head = [f"HTTP/1.1 {answer.status} Said", f"content-type: {answer.content_type}", "transfer-encoding: chunked"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
        for piece in answer.pieces:
            if piece:
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        self.written.set()
        if answer.ending == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        if answer.ending == "hold":
            await self._over.wait()
        if answer.ending == "reset":
            writer.transport.abort()
        return False


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split(" ")[1], headers, json.loads(body) if body else {})
