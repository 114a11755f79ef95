"""Asking a person at a terminal what a run waits for: one question after the other, each answered by a key.

The store decides, not the prompt: a question that is answered from elsewhere goes away, and an answer that comes too late is refused by the store and said to be so, so
nothing is answered twice. Whatever ends the prompt leaves an unanswered question as it was.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from rich.text import Text

from checkrein.cli.ask_form import AskForm, Leave, Reply
from checkrein.cli.chat_keys import Press
from checkrein.cli.chat_picture import Footer, Picture
from checkrein.cli.chat_terminal import RawTerminal
from checkrein.cli.endings import commands_for, more_of
from checkrein.cli.figures import budget_rows
from checkrein.cli.invocation import Invocation
from checkrein.cli.questions import PLANNER_FAILED, Question, questions_of
from checkrein.cli.screen import Screen, shown
from checkrein.cli.view import RunView, step_name
from checkrein.cli.words import amounts_in_words
from checkrein.errors import Rejected, ResumeError
from checkrein.harness.drafts import steps_from_data
from checkrein.harness.planners import Step
from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import StepSpec
from checkrein.kernel.state import RunState
from checkrein.ports.store import RunStore
from checkrein.values import NULL

__all__ = ["Asked", "Asker", "can_ask", "say_how_to_answer"]

_FAREWELL: Final = "checkrein: left at once; the run waits as before"

_PLAIN_REASONS: Final = {"permission", "review:permission", PLANNER_FAILED}
"""Reasons that the question itself says."""


class Asked(StrEnum):
    """How asking ended."""

    OVER = "over"
    LEFT = "left"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"


def can_ask(screen: Screen) -> bool:
    """Tell whether there is a person at a terminal that can show a question and read keys."""
    return screen.is_live and screen.can_ask


def say_how_to_answer(screen: Screen, state: RunState) -> None:
    """Say that nobody can be asked here, and how a run is answered from another process."""
    screen.note("there is no terminal to ask at; answer from another process, then resume:")
    for cause in state.causes if screen.json_lines else ():
        for command in commands_for(screen, state, cause):
            screen.note(f"  {shown(command)}")


class Asker:
    """Asks one person about one run.

    Args:
        invocation: the terminal, the time, and who is asked.
        store: where the run is.
        view: the run; what is appended meanwhile is folded into it.
    """

    def __init__(self, invocation: Invocation, store: RunStore, view: RunView) -> None:
        self._call = invocation
        self._screen = invocation.screen
        self._store = store
        self._view = view
        self._form: AskForm | None = None
        self._picture = Picture(self._screen.console, invocation.clock, self._footer, self._fail)
        self._end: asyncio.Future[Reply | Asked] = asyncio.get_running_loop().create_future()

    async def ask(self) -> Asked:
        """Ask until nothing is open that was not skipped, or the person leaves.

        Raises:
            DamagedLog: the log is not what it must be.
            StoreError: the store could not be read or written.
        """
        skipped: set[str] = set()
        with RawTerminal(self, self._call.clock, farewell=_FAREWELL):
            while True:
                await self._view.catch_up(self._store)
                question = next((item for item in self._open() if item.subject not in skipped), None)
                if question is None:
                    return Asked.OVER
                reply = await self._reply_to(question)
                if isinstance(reply, Asked):
                    return reply
                if reply is Leave.QUIT:
                    return Asked.LEFT
                if reply is Leave.SKIP:
                    skipped.add(question.subject)
                elif reply is not None:
                    await self._respond(question, reply)

    def _open(self) -> Sequence[Question]:
        return questions_of(self._view.folded, self._view.session)

    async def _reply_to(self, question: Question) -> Reply | Asked | None:
        """Ask one question; None when it was answered elsewhere."""
        self._print(question)
        more = more_of(self._view.folded, question.subject) if question.kind == "budget" else 0
        self._form = AskForm(question, more=more)
        elsewhere = self._call.clock.spawn(self._until_gone(question), name=f"ask-{self._view.run_id}")
        try:
            self._picture.show()
            await asyncio.wait({self._end, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._form = None
            self._picture.hide()
            elsewhere.cancel()
        if self._end.done():
            reply, self._end = self._end.result(), asyncio.get_running_loop().create_future()
            return reply
        elsewhere.result()
        self._screen.line(("answered elsewhere", "dim"))
        return None

    async def _until_gone(self, question: Question) -> None:
        """Return once a question is not open any more."""
        while any((item.kind, item.subject) == (question.kind, question.subject) for item in self._open()):
            await self._view.wait_for_news(self._store)

    async def _respond(self, question: Question, reply: Reply) -> None:
        try:
            await self._call.commands(self._store).respond(self._view.run_id, reply)
        except (ResumeError, Rejected) as error:
            self._screen.line((f"not taken: {shown(error)}", "yellow"))
        else:
            self._screen.line(("✓ ", "green"), shown(_said(question, reply)))

    def press(self, press: Press) -> None:
        """Give a key to the question; between two questions keys do nothing."""
        if self._form is None or self._end.done():
            return
        try:
            reply = self._form.press(press)
            if reply is not None:
                self._end.set_result(reply)
            else:
                self._picture.draw()
        except Exception as error:  # noqa: BLE001  raised where the question is awaited, so that the terminal is given back
            self._fail(error)

    def interrupt(self) -> None:
        """Leave, because Ctrl-C was pressed."""
        self._leave(Asked.INTERRUPTED)

    def terminate(self) -> None:
        """Leave, because the process was told to end or the terminal is gone."""
        self._leave(Asked.TERMINATED)

    def hide(self) -> None:
        """Leave the terminal to others for a while."""
        self._picture.hide()

    def redraw(self) -> None:
        """Draw anew."""
        if self._form is not None:
            self._picture.show()

    def _leave(self, end: Asked) -> None:
        if not self._end.done():
            self._end.set_result(end)

    def _fail(self, error: Exception) -> None:
        if not self._end.done():
            self._end.set_exception(error)

    def _footer(self, width: int) -> Footer:
        form = self._form
        if form is None:
            return Footer((), Text(), 0)
        line, column = form.line(width)
        return Footer((Text(shown(form.notice), "yellow"),) if form.notice else (), line, column)

    def _print(self, question: Question) -> None:
        self._screen.line("")
        self._screen.line((shown(_title(question, self._view.folded)), "bold yellow"))
        rows = [(name, shown(text, limit=len(text))) for name, text in self._rows(question)]
        self._screen.table(rows)

    def _rows(self, question: Question) -> Iterator[tuple[str, str]]:
        """Yield name and text of all that a person must know to answer; nothing is cut."""
        if question.tool:
            yield "call", question.subject
            step = next((item for item in self._view.session.steps if item.id == question.step_id), None)
            yield "step", str(question.step_id) if step is None or not step.description else step.description
            for name, value in question.arguments.decoded().items():
                yield f"  {shown(name)}", json.dumps(value, ensure_ascii=False)
        elif question.kind == "decision" and question.subject:
            yield "about", question.subject
            yield from _planned(self._draft(question))
        if question.kind == "decision" and question.reason not in _PLAIN_REASONS:
            yield "reason", question.reason.removeprefix("review:")
        if question.message:
            yield "error", question.message

    def _draft(self, question: Question) -> Sequence[Step | StepSpec]:
        """Return the plan that a review is about, as hooks left it."""
        draft, paused = self._view.session.draft, self._view.session.paused
        if draft is None or paused is None or (paused.topic, paused.subject) != ("after_plan", question.subject):
            return ()
        return draft.steps if paused.kept == NULL else steps_from_data(paused.kept)


def _planned(steps: Sequence[Step | StepSpec]) -> Iterator[tuple[str, str]]:
    for number, step in enumerate(steps, start=1):
        arguments = step.arguments.decoded() if isinstance(step, StepSpec) else step.arguments
        given = "" if step.tool_name is None else f" {json.dumps(arguments, ensure_ascii=False)}"
        yield f"  step {number}", f"{step_name(step)}{given}"


def _title(question: Question, state: RunState) -> str:
    if question.kind == "budget":
        row = next((item for item in budget_rows(state) if item.limit == question.subject), None)
        used = f": {row.figure} {row.label}" if row is not None else ""
        return f"The budget is used up{used}. Go on with more?"
    if question.kind == "result":
        return f"What did {question.tool} return?"
    if question.tool:
        return f"May {question.tool} be called?"
    return f"{state.task.name}: may it go on?" if question.can_be_denied else "The planner failed. Ask it again?"


def _said(question: Question, reply: Reply) -> str:
    given = dict(reply) if not isinstance(reply, Leave) else {}
    if "extend" in given:
        return f"{amounts_in_words(msgspec.convert(given['extend'], Amounts))} more"
    if question.kind == "result":
        became = "has failed" if "error" in given else "has its result"
        return f"call {question.subject} of {question.tool} {became}"
    return question.decided(allows=given.get("decision") == "allow")
