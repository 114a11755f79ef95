"""A conversation as lines: what the events of a run are for a reader, and the one line that is not finished yet.

Used at a terminal, where the unfinished line is drawn, and through pipes, where only finished lines are printed. The invariant: text of models, tools and people passes
`visible_text` here, and nothing else prints it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from checkrein.cli.screen import shown
from checkrein.loop.events import (
    AgentEvent,
    Cancelled,
    Completed,
    Failed,
    MaxSteps,
    MessageAccepted,
    ModelChunk,
    ModelRetried,
    RunFinished,
    RunWarned,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    UnadoptedCall,
)
from checkrein.messages import ContentBlock, Text as TextBlock, UserMessage
from checkrein.ports.model import Chunk, TextDelta, ThinkingDelta
from checkrein.values import visible_text

__all__ = ["Flow", "text_of"]

_SAID: Final = 300
_THINKING: Final = "dim italic"
_STATES: Final = {
    "not_started": "not started",
    "finished": "finished",
    "failed": "failed",
    "outcome_unknown": "outcome unknown",
}


def text_of(content: str | Sequence[ContentBlock]) -> str:
    """Return the text of a message or result."""
    if isinstance(content, str):
        return content
    return "".join(block.text for block in content if isinstance(block, TextBlock))


class Flow:
    """Turns events into lines.

    Args:
        print_line: prints a finished line.
        terminal: where `open` and `running` are drawn; None when nobody sees them: users' messages are not repeated then, and progress is printed.

    Attributes:
        open: the unfinished line.
        running: what running tools say, by call id.
    """

    def __init__(self, print_line: Callable[[Text], None], *, terminal: Console | None) -> None:
        self.open = Text()
        self.running: dict[str, str] = {}
        self._print = print_line
        self._terminal = terminal
        self._style = ""
        self._has_spoken = False

    def take(self, event: AgentEvent) -> None:
        """Show one more event."""
        match event:
            case ModelChunk():
                self._chunk(event.chunk)
            case MessageAccepted():
                self._user(event.message)
            case ModelRetried():
                self._line(
                    f"the model failed: {shown(event.error)}; asked again in {event.delay:.1f} s (attempt {event.attempt}), what it said so far is void",
                    "yellow",
                )
            case RunWarned():
                self._line(shown(event.message), "yellow")
            case RunFinished():
                self._end(event)
            case ToolStarted() | ToolProgress() | ToolFinished():
                self._tool(event)

    def _chunk(self, chunk: Chunk) -> None:
        if isinstance(chunk, TextDelta):
            self._has_spoken = True
            self._say(chunk.delta, "")
        elif isinstance(chunk, ThinkingDelta):
            self._say(chunk.delta, _THINKING)

    def _say(self, delta: str, style: str) -> None:
        if style != self._style:
            self.close()
            self._style = style
        first, *others = visible_text(delta).replace("\t", "    ").split("\n")
        self.open.append(first, style)
        for line in others:
            self._print(self.open)
            self.open = Text(line, style)
        self._let_full_rows_go()

    def _let_full_rows_go(self) -> None:
        """Print what fills whole rows, so that the unfinished line is one row."""
        if self._terminal is None:
            return
        *rows, _ = self.open.wrap(self._terminal, self._terminal.width)
        plain = self.open.plain
        end = 0
        for row in rows:
            end = plain.index(row.plain, end) + len(row.plain)
            self._print(row)
        if rows:
            self.open = Text(plain[end:].lstrip(" "), self._style)

    def _user(self, message: UserMessage) -> None:
        self.close()
        self._has_spoken = False
        if self._terminal is None:
            return
        self._print(Text())
        for number, line in enumerate(visible_text(text_of(message.content)).split("\n")):
            self._print(Text(f"{'  ' if number else '› '}{line}", "bold"))

    def _tool(self, event: ToolStarted | ToolProgress | ToolFinished) -> None:
        if isinstance(event, ToolProgress):
            self.running[event.call_id] = shown(event.text, limit=_SAID)
            if self._terminal is None:
                self._line(f"  {shown(event.call_id)}: {shown(event.text)}", "dim")
            return
        name = shown(event.name, limit=64)
        if isinstance(event, ToolStarted):
            self.running[event.call_id] = ""
            arguments = shown(event.arguments.encoded.decode(), limit=_SAID) if event.arguments else ""
            self._line(f"▸ {name} {arguments}".rstrip(), "cyan")
            return
        self.running.pop(event.call_id, None)
        self._has_spoken = False
        mark, style = ("✗", "red") if event.result.is_error else ("✓", "green")
        self._line(f"{mark} {name}: {shown(text_of(event.result.content), limit=_SAID)}", style)

    def _end(self, event: RunFinished) -> None:
        self.close()
        self.running.clear()
        match event.result:
            case Completed() as end:
                if not self._has_spoken:  # a model need not stream what it says
                    self._say(end.final_text, "")
                    self.close()
            case Cancelled() as end:
                self._line("cancelled: what was said and done in this turn is not part of the conversation", "yellow")
                self._unadopted(end.unadopted_calls)
            case Failed() as end:
                self._line(f"failed ({end.error.code}): {shown(end.error.message)}", "red")
                self._unadopted(end.unadopted_calls)
            case MaxSteps() as end:
                self._line(f"stopped ({end.limit}) after at most {end.max_steps} requests; it can go on", "yellow")
        self._has_spoken = False

    def _unadopted(self, calls: Sequence[UnadoptedCall]) -> None:
        for item in calls:
            self._line(f"  {shown(item.call.name, limit=64)}: {_STATES[item.state]}", "yellow")

    def _line(self, text: str, style: str) -> None:
        self.close()
        self._print(Text(text, style))

    def close(self) -> None:
        """Finish the unfinished line, if there is any of it."""
        if self.open:
            self._print(self.open)
        self.open = Text()
        self._style = ""
