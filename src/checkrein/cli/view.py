"""A run as one process sees it grow: the folds that every kind of progress draws from.

The invariant: what is shown is folded from the run's log alone, so a live picture, plain lines and a later `show` cannot disagree.
"""

from collections.abc import Iterable

from checkrein.codec.wire import decode_event
from checkrein.errors import DamagedLog
from checkrein.harness.planners import Step
from checkrein.kernel.events import Event, StepSpec
from checkrein.kernel.run import fold_run
from checkrein.kernel.session import fold_session
from checkrein.kernel.session_state import EndedStep, SessionState, StepStatus
from checkrein.kernel.state import RunState
from checkrein.ports.store import RunStore

__all__ = ["RunView", "step_name"]


class RunView:
    """A run's folds at the version that was read so far.

    Attributes:
        run_id: the run.
        state: its lifecycle; None before its first event.
        session: the session it drives.
        version: how many events were read.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.state: RunState | None = None
        self.session = SessionState()
        self.version = 0

    @property
    def folded(self) -> RunState:
        """The lifecycle, once something was read; every log has its first event.

        Raises:
            DamagedLog: nothing was read yet.
        """
        if self.state is None:
            raise DamagedLog(self.run_id, 0, "it is empty")
        return self.state

    def take(self, body: bytes) -> Event:
        """Fold one more event, and return it.

        Raises:
            DamagedLog: the bytes are not the next event of this run.
        """
        event = decode_event(body, run_id=self.run_id, offset=self.version)
        self.state = fold_run((event,), self.state)
        self.session = fold_session((event,), self.session)
        self.version += 1
        return event

    def take_all(self, bodies: Iterable[bytes]) -> None:
        """Fold several events.

        Raises:
            DamagedLog: one of them is not the next event of this run.
        """
        for body in bodies:
            self.take(body)

    async def catch_up(self, store: RunStore) -> None:
        """Fold all that the store has: whole batches, because none is seen in part.

        Raises:
            RunNotFound: there is no such run.
            DamagedLog: its log is not what it must be.
            StoreError: the store cannot be read.
        """
        self.take_all(await store.read(self.run_id, self.version))

    async def wait_for_news(self, store: RunStore) -> None:
        """Fold what comes next, once there is anything; return at once when nothing can follow.

        Raises:
            RunNotFound: there is no such run.
            DamagedLog: its log is not what it must be.
            StoreError: the store cannot be read.
        """
        async for _ in store.follow(self.run_id, self.version):
            break
        await self.catch_up(store)

    def steps(self) -> tuple[tuple[StepSpec, StepStatus], ...]:
        """Return every step that ended, of this plan and of earlier ones, then those of this plan that have not.

        A step of a batch ends with the batch; it is shown by its answer as soon as that is there.
        """
        ended: list[tuple[StepSpec, StepStatus]] = [
            (item.step, item.status) for item in self.session.history if isinstance(item, EndedStep)
        ]
        answers = {work.step.id: work.answer for work in self.session.work}
        for step in self.session.steps:
            status = self.session.status.get(step.id, "open")
            if status in {"open", "started"}:
                answer = answers.get(step.id)
                ended.append((step, status if answer is None else "failed" if answer.error else "done"))
        return tuple(ended)


def step_name(step: Step | StepSpec) -> str:
    """Return what a step is, in words that may be unsafe to print."""
    description = step.description or str(step.id)
    return f"{description} ({step.tool_name})" if step.tool_name else description
