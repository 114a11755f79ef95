"""A server on this machine that plays a scripted model, over the wires of Chat Completions and of Anthropic's Messages: for documentation, tests, and trying a task without a key.

    python -m checkrein.testing.fake_model SCRIPT -- checkrein run PATH --model compatible/fake

starts it, runs the command with its address in the environment, and ends with the command's exit code; without a command it serves until Ctrl-C. `--model anthropic/fake` asks
it over the other wire. A script is a file of replies as `checkrein chat --script` takes it. The invariant: a reply depends on the conversation alone (the n-th answer is the
n-th reply), so a request that is made again gets the same one; only a reply with `error` is given once, and then the one after it.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self, cast

import msgspec

from checkrein.clock import SystemClock, run_bounded
from checkrein.errors import TaskError
from checkrein.ports.clock import Clock
from checkrein.testing.fake_messages import message_events
from checkrein.testing.script import Call, Reply, Script, read_script
from checkrein.values import JsonValue

__all__ = ["FakeModelServer", "main"]

_HOST: Final = "127.0.0.1"
_MAX_BODY: Final = 64 * 1024 * 1024
_WORD: Final = re.compile(r"\s*\S+\s*|\s+")
_CLOCK: Final = SystemClock()
_CLOSING_SECONDS: Final = 2.0
_VARIABLE: Final = "COMPATIBLE_BASE_URL"
_VARIABLES: Final = (_VARIABLE, "ANTHROPIC_BASE_URL")
_KEY: Final = "ANTHROPIC_API_KEY"
_CHAT: Final = "/chat/completions"
_MESSAGES: Final = "/messages"
_ENDS: Final = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)
"""How a connection ends that is broken, or speaks no HTTP."""
_Json = dict[str, JsonValue]


class _Message(msgspec.Struct):
    role: str = ""


class _Body(msgspec.Struct):
    """What matters of a request."""

    model: str = "fake"
    messages: list[_Message] = []


class _Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    body: bytes


class FakeModelServer:
    """Answers requests for chat completions and messages from a script, until its `async with` ends.

    Args:
        script: what is said.
        port: where to listen; 0 for any free port.
        clock: time, for the script's delays.

    Attributes:
        url: its address, as `base_url` wants it.
        asked: the bodies of the requests so far.
    """

    def __init__(self, script: Script, *, port: int = 0, clock: Clock = _CLOCK) -> None:
        self._port = port
        self._clock = clock
        self._repeat = script.repeat
        self._replies, self._errors = _by_place(script.reply)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.url = ""
        self.asked: list[bytes] = []

    async def __aenter__(self) -> Self:
        """Begin to listen.

        Raises:
            OSError: the port is taken.
        """
        self._server = await asyncio.start_server(self._serve, _HOST, self._port, limit=_MAX_BODY)
        port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{_HOST}:{port}/v1"
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Stop listening, and close what is open."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def serve_forever(self) -> None:
        """Serve until cancelled."""
        if self._server is not None:
            await self._server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._open.add(task)
        # A connection that is cancelled, which the end of the server alone does, has ended as it should.
        with contextlib.suppress(*_ENDS, asyncio.CancelledError):
            while True:
                await self._answer(await _read(reader), writer)
                await writer.drain()
        writer.close()
        with contextlib.suppress(*_ENDS, asyncio.CancelledError):
            await writer.wait_closed()
        self._open.discard(task)

    async def _answer(self, request: _Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "GET" and request.path.endswith("/models"):
            _send(writer, 200, {"object": "list", "data": [{"id": "fake", "object": "model"}]})
            return
        if request.method != "POST" or not request.path.endswith((_CHAT, _MESSAGES)):
            _send(writer, 404, _error(f"only {_CHAT}, {_MESSAGES} and /models are served", "not_found_error"))
            return
        try:
            body = msgspec.json.decode(request.body, type=_Body)
        except msgspec.DecodeError as error:
            _send(writer, 400, _error(str(error), "invalid_request_error"))
            return
        self.asked.append(request.body)
        place = sum(message.role == "assistant" for message in body.messages)
        if self._replies and self._repeat:
            place %= len(self._replies)
        if self._errors.get(place):
            _send(writer, 503, _error(self._errors[place].pop(0).error, "overloaded_error"))
        elif place < len(self._replies):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            send = self._send_message if request.path.endswith(_MESSAGES) else self._send_chat
            await send(writer, body, place, read=len(request.body) // 4)
            writer.write(b"0\r\n\r\n")
        else:
            said = f"the script has no reply number {place + 1}; `repeat = true` lets it begin anew"
            _send(writer, 400, _error(said, "invalid_request_error"))

    async def _send_message(self, writer: asyncio.StreamWriter, body: _Body, place: int, *, read: int) -> None:
        reply = self._replies[place]
        for event in message_events(reply, place, model=body.model, read=read):
            _piece(writer, f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            await writer.drain()
            await self._clock.sleep(reply.delay if event["type"] == "content_block_delta" else 0.0)

    async def _send_chat(self, writer: asyncio.StreamWriter, body: _Body, place: int, *, read: int) -> None:
        reply, written = self._replies[place], 0
        for delta in _deltas(reply, place):
            written += 1
            _event(writer, _chunk(body, place, delta, None))
            await writer.drain()
            await self._clock.sleep(reply.delay)
        _event(writer, _chunk(body, place, {}, "tool_calls" if reply.call else "stop"))
        usage: _Json = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        _event(writer, {**_chunk(body, place, {}, None), "choices": [], "usage": usage})
        _piece(writer, b"data: [DONE]\n\n")


def _by_place(replies: Sequence[Reply]) -> tuple[list[Reply], dict[int, list[Reply]]]:
    """Return the replies that answer, and by the number of each the failures that come before it."""
    said: list[Reply] = []
    failures: dict[int, list[Reply]] = {}
    for reply in replies:
        if reply.error:
            failures.setdefault(len(said), []).append(reply)
        else:
            said.append(reply)
    return said, failures


def _deltas(reply: Reply, place: int) -> Iterator[_Json]:
    yield {"role": "assistant", "content": ""}
    for word in _WORD.findall(reply.thinking):
        yield {"reasoning_content": word}
    for word in _WORD.findall(reply.text):
        yield {"content": word}
    for number, call in enumerate(reply.call):
        yield from _call(call, place, number)


def _call(call: Call, place: int, number: int) -> Iterator[_Json]:
    """Yield a call in two pieces, as providers do."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    half = len(arguments) // 2
    first: _Json = {"name": call.tool, "arguments": arguments[:half]}
    yield {
        "tool_calls": [{"index": number, "id": f"call_{place + 1}_{number + 1}", "type": "function", "function": first}]
    }
    yield {"tool_calls": [{"index": number, "function": {"arguments": arguments[half:]}}]}


def _chunk(body: _Body, place: int, delta: _Json, finish: str | None) -> _Json:
    return {
        "id": f"chatcmpl-fake-{place + 1}",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def _error(message: str, kind: str) -> _Json:
    return {"error": {"message": message, "type": kind}}


def _event(writer: asyncio.StreamWriter, data: _Json) -> None:
    _piece(writer, f"data: {json.dumps(data)}\n\n".encode())


def _piece(writer: asyncio.StreamWriter, piece: bytes) -> None:
    writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")


def _send(writer: asyncio.StreamWriter, status: int, data: _Json) -> None:
    body = json.dumps(data).encode()
    head = f"HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def _read(reader: asyncio.StreamReader) -> _Request:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, _, rest = first.partition(" ")
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return _Request(method, rest.partition(" ")[0], body)


async def _run(script: Script, port: int, command: Sequence[str]) -> int:
    """Serve while a command runs, and return its exit code; without one until cancelled."""
    async with FakeModelServer(script, port=port) as server:
        if not command:
            sys.stdout.write(f"{server.url}\n")
            sys.stdout.flush()
            await server.serve_forever()
            return 0
        process = await asyncio.create_subprocess_exec(*command, env=_environment(server.url))
        return await process.wait()


def _environment(url: str) -> dict[str, str]:
    """Return the environment of a command, which asks this server whichever of its wires it speaks; it has a key for the wire that wants one, and not yours."""
    return {**os.environ, **dict.fromkeys(_VARIABLES, url), _KEY: "fake"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what a command line says, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m checkrein.testing.fake_model",
        description="Play a scripted model over the Chat Completions and Messages wires on this machine.",
    )
    parser.add_argument("script", type=Path, help="a file of replies, as `checkrein chat --script` takes it")
    parser.add_argument("--port", type=int, default=0, help="where to listen; any free port by default")
    parser.add_argument(
        "command", nargs="*", metavar="-- COMMAND", help=f"run with {' and '.join(_VARIABLES)} set to the server"
    )
    given = parser.parse_args(arguments)
    try:
        return run_bounded(_run(read_script(given.script), given.port, given.command), seconds=_CLOSING_SECONDS)
    except KeyboardInterrupt:
        return 130
    except (TaskError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
