"""A conversation through pipes: each line of standard input is a prompt, each reply is printed, and nothing is steered.

Input is read in a thread with the system's own call, so that any kind of file will do and nobody waits for the thread at the end. The invariant: a prompt is made only when
the run before it has ended.
"""

import asyncio
import codecs
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Final, cast

import msgspec
from msgspec.structs import replace
from rich.text import Text

from checkrein.agent.agent import Agent
from checkrein.cli.chat_flow import Flow
from checkrein.cli.exits import Exit
from checkrein.cli.screen import Screen
from checkrein.cli.signals import heeding
from checkrein.loop.events import AgentEvent, RunFinished
from checkrein.ports.clock import Clock
from checkrein.ports.tool import CancelSignal
from checkrein.tools.threads import run_in_thread
from checkrein.values import JsonObject

__all__ = ["Lines", "record_of"]

_READ_BYTES: Final = 65_536
_MOST_CHARACTERS: Final = 1_048_576


class Lines:
    """Somebody who sends lines.

    Args:
        agent: the conversation.
        screen: where replies go.
        clock: time and tasks.
    """

    def __init__(self, agent: Agent, screen: Screen, clock: Clock) -> None:
        self._agent = agent
        self._screen = screen
        self._clock = clock
        self._flow = Flow(self._print, terminal=None)
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    async def talk(self) -> Exit:
        """Answer line by line to the end of the input, and return the exit code: 1 when the last run failed."""
        unsubscribe = self._agent.subscribe(self._on_event)
        farewell = "checkrein: left at once; what ran was left behind"
        with heeding(interrupt=self._interrupt, terminate=self._terminate, farewell=farewell):
            reading = self._clock.spawn(self._answer_all(), name="chat-lines")
            await asyncio.wait((reading, self._end), return_when=asyncio.FIRST_COMPLETED)
            if self._end.done():
                reading.cancel()  # first, or it would begin the next run
            await self._agent.aclose()
        unsubscribe()
        return self._end.result() if self._end.done() else reading.result()

    async def _answer_all(self) -> Exit:
        status = ""
        async for line in _lines():
            if line.strip():
                status = (await self._agent.prompt(line)).status
            if self._screen.is_gone:
                break
        return Exit.FAILED if status == "failed" else Exit.SUCCEEDED

    def _interrupt(self) -> None:
        self._stop(Exit.INTERRUPTED if self._agent.is_running else Exit.SUCCEEDED)

    def _terminate(self) -> None:
        self._stop(Exit.TERMINATED)

    def _stop(self, end: Exit | Exception) -> None:
        if self._end.done():
            return
        if isinstance(end, Exit):
            self._end.set_result(end)
        else:
            self._end.set_exception(end)

    def _on_event(self, event: AgentEvent, _signal: CancelSignal) -> None:
        try:
            if self._screen.json_lines:
                self._screen.record(record_of(event))
            else:
                self._flow.take(event)
        except Exception as error:
            self._stop(error)
            raise

    def _print(self, text: Text) -> None:
        self._screen.line((text.plain, str(text.style)))


def record_of(event: AgentEvent) -> Mapping[str, object]:
    """Return an event as a JSON object; the end of a run without the transcript, which is the sum of what was told."""
    if not isinstance(event, RunFinished):
        return {"type": event.type, **_fields(event)}
    result = _fields(replace(event.result, messages=()))
    del result["messages"]
    return {"type": event.type, "sequence": event.sequence, "run_id": event.run_id, "result": result}


def _fields(value: msgspec.Struct) -> dict[str, object]:
    return cast("dict[str, object]", msgspec.to_builtins(value, enc_hook=_plain))


def _plain(value: object) -> object:
    if isinstance(value, JsonObject):
        return value.decoded()
    msg = f"{type(value).__name__} has no JSON form"
    raise TypeError(msg)


async def _lines() -> AsyncIterator[str]:
    """Yield the lines of standard input without their ends; one that is longer than a prompt may be comes in pieces."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  it is when it was closed
        return
    descriptor = sys.stdin.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""
    while True:
        data = await run_in_thread(lambda: os.read(descriptor, _READ_BYTES), name="chat-input")
        held += decoder.decode(data, final=not data)
        *lines, held = held.split("\n")
        for line in lines:
            yield line.removesuffix("\r")
        if not data or len(held) > _MOST_CHARACTERS:
            if held:
                yield held
            held = ""
        if not data:
            return
