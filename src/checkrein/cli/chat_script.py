"""A conversation's scripted side: the replies of a script, played by the scripted model."""

import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from checkrein.cli.chat_tools import TOOL_NAMES
from checkrein.cli.exits import Usage
from checkrein.errors import ModelError, TaskError, TransientModelError
from checkrein.messages import ContentBlock, Text, Thinking, ToolCall
from checkrein.ports.clock import Clock
from checkrein.ports.model import (
    Chunk,
    ModelRequest,
    ModelResponse,
    ModelStream,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from checkrein.ports.tool import CancelSignal
from checkrein.testing import script
from checkrein.testing.script import Call, Reply, Script
from checkrein.testing.scripted import ScriptedModel, reply

__all__ = ["Call", "Reply", "ScriptPlayer", "read_script"]

_WORD = re.compile(r"\s*\S+\s*|\s+")


def read_script(file: Path) -> Script:
    """Return the script of a conversation.

    Raises:
        Usage: it cannot be read, is no TOML, or is no script; the message names file, place and fix.
    """
    try:
        return script.read_script(file, TOOL_NAMES)
    except TaskError as error:
        raise Usage(str(error)) from error


class ScriptPlayer:
    """A model that plays a script."""

    def __init__(self, script: Script, clock: Clock) -> None:
        self._script = script
        self._clock = clock
        self._calls = 0
        self._model = ScriptedModel()
        self._add()

    def stream(self, request: ModelRequest, signal: CancelSignal) -> ModelStream:
        """Play the next reply."""
        if not self._model.remaining:
            if self._script.repeat:
                self._add()
            else:
                self._model.append_response(ModelError("the script is over; `repeat = true` lets it begin anew"))
        return self._model.stream(request, signal)

    def _add(self) -> None:
        for item in self._script.reply:
            self._model.append_response(partial(self._play, item))

    async def _play(
        self, item: Reply, request: ModelRequest, _signal: CancelSignal
    ) -> AsyncIterator[Chunk | ModelResponse]:
        if item.error:
            raise TransientModelError(item.error)
        blocks: list[ContentBlock] = []
        if item.thinking:
            blocks.append(Thinking(item.thinking))
            async for word in self._words(item.thinking, item.delay):
                yield ThinkingDelta(request.id, word)
        if item.text:
            blocks.append(Text(item.text))
            async for word in self._words(item.text, item.delay):
                yield TextDelta(request.id, word)
        for call in item.call:
            self._calls += 1
            block = ToolCall(f"call-{self._calls}", call.tool, call.arguments)
            blocks.append(block)
            yield ToolCallDelta(request.id, block)
        yield reply(*blocks)

    async def _words(self, text: str, delay: float) -> AsyncIterator[str]:
        for word in _WORD.findall(text):
            await self._clock.sleep(delay)
            yield word
