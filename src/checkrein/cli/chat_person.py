"""A conversation at a terminal: what each key does, and what stands below while the agent works.

The agent owns transcript, queues and runs; here a key becomes one call of it, and its events become lines. The invariant: what a person typed is in the line, in a queue or
in the transcript, and never lost.
"""

import asyncio
from collections.abc import Iterator

from rich.text import Text

from checkrein.agent.agent import Agent
from checkrein.agent.inbox import Queued
from checkrein.cli.chat_flow import Flow, text_of
from checkrein.cli.chat_keys import Key, Press
from checkrein.cli.chat_line import InputLine
from checkrein.cli.chat_picture import Footer, Picture
from checkrein.cli.chat_terminal import RawTerminal
from checkrein.cli.exits import Exit
from checkrein.cli.screen import Screen, shown
from checkrein.errors import AgentError
from checkrein.loop.events import AgentEvent, RunResult
from checkrein.messages import UserMessage
from checkrein.ports.clock import Clock
from checkrein.ports.tool import CancelSignal
from checkrein.streams import EventStream

__all__ = ["Person"]

_PROMPT = "› "
_MOST_QUEUED = 4
_KEYS = "Enter sends · Esc cancels · Ctrl-D leaves"
_WORKING = "working · Enter steers · Alt+Enter follows up · Esc cancels"
_CANCELLING = "cancelling · what runs has a few seconds to end · Ctrl-C leaves at once"
_LEAVING = "leaving · what runs has a few seconds to end · Ctrl-C leaves at once"
_FAREWELL = "checkrein: left at once; what ran was left behind"


class Person:
    """Somebody at a terminal.

    Args:
        agent: the conversation.
        screen: the terminal.
        clock: time and tasks.
    """

    def __init__(self, agent: Agent, screen: Screen, clock: Clock) -> None:
        self._agent = agent
        self._screen = screen
        self._clock = clock
        self._line = InputLine()
        self._picture = Picture(screen.console, clock, self._footer, self._stop)
        self._flow = Flow(self._picture.line, terminal=screen.console)
        self._notice = ""
        self._is_cancelling = False
        self._is_leaving = False
        self._can_go_on = False
        self._terminal: RawTerminal | None = None
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    async def talk(self, title: str) -> Exit:
        """Talk until the person leaves, and return the exit code.

        Raises:
            Exception: whatever went wrong in here; the terminal is as it was.
        """
        unsubscribe = self._agent.subscribe(self._on_event)
        try:
            with RawTerminal(self, self._clock, farewell=_FAREWELL) as self._terminal:
                self._screen.line((shown(title), "bold"))
                self._screen.line((_KEYS, "dim"))
                try:
                    self._picture.show()
                    code = await self._end
                    await self._leave()
                finally:
                    self._picture.hide()
        finally:
            unsubscribe()
        return code

    async def _leave(self) -> None:
        self._is_leaving = True
        self._picture.draw_soon()
        await self._agent.aclose()

    def press(self, press: Press) -> None:
        """Do what a key does."""
        try:
            self._press(press)
        except Exception as error:  # noqa: BLE001  raised where the conversation is awaited, so that the terminal is given back
            self._stop(error)

    def _press(self, press: Press) -> None:
        if self._is_leaving:
            return
        self._notice = ""
        match press:
            case Key.ENTER:
                self._enter()
            case Key.ALT_ENTER:
                self._enter(follows_up=True)
            case Key.ESCAPE:
                self._cancel()
            case Key.CLOSE:
                self._stop(Exit.SUCCEEDED)
            case _:
                self._line.press(press)
        self._picture.draw()

    def _enter(self, *, follows_up: bool = False) -> None:
        text = self._line.text
        try:
            if not text.strip():
                self._go_on()
            elif not self._agent.is_running:
                self._follow(self._agent.prompt(text))
            elif follows_up:
                self._agent.follow_up(text)
            else:
                self._agent.steer(text)
        except AgentError as error:
            self._notice = shown(error.message)
        else:
            self._line.take()

    def _go_on(self) -> None:
        if self._agent.is_running:
            return
        is_bare = not self._agent.queued
        try:
            stream = self._agent.continue_()
        except AgentError as error:
            is_empty = error.code == "AGENT_NOTHING_TO_CONTINUE"
            self._notice = "there is nothing to go on from; type a message" if is_empty else shown(error.message)
            return
        if is_bare:
            self._picture.line(Text("\ngoes on", "dim"))
        self._follow(stream)

    def _follow(self, stream: EventStream[AgentEvent, RunResult]) -> None:
        self._is_cancelling = False
        self._clock.spawn(self._until_idle(stream), name="chat-run")

    async def _until_idle(self, stream: EventStream[AgentEvent, RunResult]) -> None:
        result = await stream
        self._is_cancelling = False
        self._can_go_on = result.status != "completed"
        if result.status == "cancelled" and self._agent.queued and not self._end.done():
            # Cancelling gave back what was queued: this was typed since, and is meant for what comes next.
            self._go_on()
        self._picture.draw_soon()

    def _cancel(self) -> None:
        """Cancel what runs, and give queued text back."""
        self._is_cancelling = self._agent.cancel() or self._is_cancelling
        taken = self._agent.clear_queue()
        if taken:
            self._line.give_back("\n".join(text_of(message.content) for message in _messages(taken)))

    def interrupt(self) -> None:
        """Cancel what runs; leave when nothing does, and at once when that was asked for before."""
        if self._terminal is not None and ((self._agent.is_running and self._is_cancelling) or self._is_leaving):
            self._picture.hide()
            self._terminal.leave_at_once(Exit.INTERRUPTED)
        elif self._agent.is_running:
            self.press(Key.ESCAPE)
        else:
            self._stop(Exit.SUCCEEDED)

    def terminate(self) -> None:
        """Leave, because the process was told to end or the terminal is gone."""
        self._stop(Exit.TERMINATED)

    def hide(self) -> None:
        """Leave the terminal to others for a while."""
        self._picture.hide()

    def redraw(self) -> None:
        """Draw anew."""
        if not self._end.done():
            self._picture.show()

    def _stop(self, end: Exit | Exception) -> None:
        if self._end.done():
            return
        if isinstance(end, Exit):
            self._end.set_result(end)
        else:
            self._end.set_exception(end)

    def _on_event(self, event: AgentEvent, _signal: CancelSignal) -> None:
        try:
            self._flow.take(event)
        except Exception as error:
            self._stop(error)
            raise
        self._picture.draw_soon()

    def _footer(self, width: int) -> Footer:
        text, column = self._line.view(width - len(_PROMPT))
        line = Text.assemble((_PROMPT, "bold"), text)
        return Footer(tuple(self._rows()), line, column + len(_PROMPT))

    def _rows(self) -> Iterator[Text]:
        if self._flow.open:
            yield self._flow.open.copy()
        for text in self._flow.running.values():
            if text:
                yield Text(f"  {text}", "dim")
        queued = [(f"{name}: ", text_of(item.content)) for name, item in _named(self._agent.queued)]
        for name, text in queued[:_MOST_QUEUED]:
            yield Text.assemble((f"  ↳ {name}", "magenta"), (shown(text), "dim"))
        if len(queued) > _MOST_QUEUED:
            yield Text(f"  ↳ and {len(queued) - _MOST_QUEUED} more", "dim")
        status = self._status()
        if status:
            yield Text(status, "dim")
        if self._notice:
            yield Text(self._notice, "yellow")

    def _status(self) -> str:
        if self._is_leaving:
            return _LEAVING if self._agent.is_running else ""
        if self._agent.is_running:
            return _CANCELLING if self._is_cancelling else _WORKING
        if self._agent.queued:
            return "Enter on an empty line goes on · Esc gives back what is queued"
        return "Enter on an empty line goes on from here" if self._can_go_on else ""


def _named(queued: Queued) -> Iterator[tuple[str, UserMessage]]:
    for message in queued.steering:
        yield "steer", message
    for message in queued.follow_up:
        yield "follow up", message


def _messages(queued: Queued) -> Iterator[UserMessage]:
    return (message for _, message in _named(queued))
