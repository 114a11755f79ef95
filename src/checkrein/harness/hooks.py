"""Hooks: where a caller steps in, and how what steps in is called.

`POWERS` says what the hooks of each topic may do, and what it does not list is refused. Of the session a hook works in nothing is known here: what a payload holds and
what comes of an answer is the driver's business. The invariant: whatever a hook does, `fire` returns what was decided and who failed on the way; only the end of the
caller's own task passes through.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial
from typing import Final, Literal, TypeAlias, TypeVar, cast, overload

import msgspec

from checkrein.errors import DataError, HookAbort, HookPowerError, UnknownTopic
from checkrein.harness.topics import POWERS, TOPICS, Powers, Topic, powers_table
from checkrein.tools.results import describe_error
from checkrein.values import clean_text, shorten

__all__ = [
    "POWERS",
    "SKIP",
    "TOPICS",
    "Fired",
    "HookAbort",
    "HookAnswer",
    "HookError",
    "HookPowerError",
    "Hooks",
    "Pause",
    "Powers",
    "Skip",
    "Subscriber",
    "Topic",
    "UnknownTopic",
    "denied",
    "powers_table",
]

MAX_ERRORS = 100
"""Failures kept; older ones are forgotten first."""
MAX_TEXT_CHARACTERS = 4_000
"""Characters of a reason; a longer one is cut with a mark."""
MAX_NAME_CHARACTERS = 200

NO_REASON = "no reason was given"
DENIED = "a person denied it"


class Skip(Enum):
    """The type of `SKIP`."""

    SKIP = "SKIP"

    def __repr__(self) -> str:
        """Show the name it is imported by."""
        return "SKIP"


SKIP: Final = Skip.SKIP
"""Return it from a hook: this step, or the next one, is skipped."""


class Pause(msgspec.Struct, frozen=True):
    """Return it from a hook: the session pauses for a review.

    Attributes:
        reason: why, for people; not empty.
    """

    reason: str


HookAnswer: TypeAlias = Skip | Pause | None
Subscriber: TypeAlias = Callable[[dict[str, object]], HookAnswer | Awaitable[HookAnswer]]
S = TypeVar("S", bound=Subscriber)


class HookError(msgspec.Struct, frozen=True):
    """A hook failed.

    Attributes:
        topic: what it was called for.
        subscriber: its name.
        message: what went wrong, in words.
        type: the class of what it raised; `HookPowerError` for a power it does not have, `DataError` for an answer that is none.
    """

    topic: Topic
    subscriber: str
    message: str
    type: str


class Fired(msgspec.Struct, frozen=True):
    """What the hooks of one firing decided.

    Attributes:
        kind: `went` when nobody decided anything; `failed` only in `before_tool_call`, where a call is not made past a hook that failed.
        text: the text of the abort, the reason of the pause, or who failed and how; `""` otherwise.
        position: where a later firing for the same subject goes on: after the hook that decided.
        failures: the hooks that failed on the way, in order; of a firing that failed the last one ended it.
    """

    kind: Literal["went", "aborted", "skipped", "paused", "failed"]
    text: str
    position: int
    failures: tuple[HookError, ...]


class _Member(msgspec.Struct, frozen=True):
    place: int
    subscriber: Callable[[dict[str, object]], object]
    name: str


_Decision: TypeAlias = tuple[Literal["aborted", "skipped", "paused"], str]


class _Missing(Enum):
    MISSING = 0


class Hooks:
    """The hooks of one session, by topic, in the order in which they were registered.

    Attributes:
        pauses_on_failure: whether a hook that raised pauses the session (`review:hook_failed`); else it is only kept in `errors`.
    """

    def __init__(self) -> None:
        # A change makes new tuples, so that a firing under way keeps those it began with.
        self._members: dict[Topic, tuple[_Member, ...]] = dict.fromkeys(TOPICS, ())
        # Places are never given twice: one that a paused firing was told stays right when hooks before it leave.
        self._places: dict[Topic, int] = dict.fromkeys(TOPICS, 0)
        self.pauses_on_failure = False
        self._errors: deque[HookError] = deque(maxlen=MAX_ERRORS)

    @property
    def errors(self) -> tuple[HookError, ...]:
        """The last 100 failures that ended no firing, oldest first; a failure in `before_tool_call` is that call's error instead."""
        return tuple(self._errors)

    @overload
    def on(self, topic: Topic, subscriber: Subscriber) -> Callable[[], None]: ...
    @overload
    def on(self, topic: Topic) -> Callable[[S], S]: ...
    def on(
        self, topic: Topic, subscriber: Subscriber | _Missing = _Missing.MISSING
    ) -> Callable[[], None] | Callable[[S], S]:
        """Register a hook, from the next firing on; one that is registered twice is called twice.

        Args:
            topic: one of `TOPICS`.
            subscriber: a plain or async function of the payload. A plain one is called on the event loop, so it must not block. Without it
                a decorator is returned, which registers what it decorates.

        Returns:
            What removes the hook again, from the next firing on; calling that twice does nothing.

        Raises:
            UnknownTopic: there is no such topic.
            DataError: `subscriber` cannot be called.
        """
        known = _known(topic)
        if not isinstance(subscriber, _Missing):
            return self._register(known, subscriber)

        def register(decorated: S) -> S:
            self._register(known, decorated)
            return decorated

        return register

    def _register(self, topic: Topic, subscriber: object) -> Callable[[], None]:
        if not callable(subscriber):
            msg = f"a hook of {topic} is a function of the payload, not {_kind(subscriber)}"
            raise DataError(msg)
        member = _Member(self._places[topic], subscriber, _name(subscriber))
        self._places[topic] += 1
        self._members[topic] = (*self._members[topic], member)

        def unsubscribe() -> None:
            self._members[topic] = tuple(item for item in self._members[topic] if item.place != member.place)

        return unsubscribe

    def count(self, topic: Topic) -> int:
        """Return how many hooks a topic has.

        Raises:
            UnknownTopic: there is no such topic.
        """
        return len(self._members[_known(topic)])

    def has_subscribers(self, topic: Topic) -> bool:
        """Whether a topic has any hook; cheap enough to ask at every step.

        Raises:
            UnknownTopic: there is no such topic.
        """
        return bool(self._members[_known(topic)])

    def note(self, topic: Topic, subscriber: str, message: str) -> None:
        """Keep a failure that a driver found in what hooks left behind, such as a plan that is none any more."""
        self._errors.append(HookError(_known(topic), subscriber, _text(message, NO_REASON), "DataError"))

    async def fire(self, topic: Topic, payload: dict[str, object], *, start: int = 0) -> Fired:
        """Call a topic's hooks one after another until one of them decides.

        A hook that fails is told in `failures`, and the next one is called, except in `before_tool_call`, where the firing ends. Nothing else
        is fired for a failure: that is the caller's to do.

        Args:
            topic: one of `TOPICS`.
            payload: what the hooks see and may change: this very dict.
            start: the `position` of an earlier firing for the same subject: the hooks before it are not called again.

        Raises:
            UnknownTopic: there is no such topic.
            asyncio.CancelledError: the caller's task was cancelled, whatever the hook made of it.
            KeyboardInterrupt: a hook raised it.
        """
        known = _known(topic)
        end = max(start, self._places[known])
        failures: list[HookError] = []
        for member in self._members[known]:
            if member.place < start:
                continue
            answer = await _ask(known, member, payload)
            if isinstance(answer, HookError):
                failures.append(answer)
                if known == "before_tool_call":
                    text = f"hook {answer.subscriber} failed: {answer.message}"
                    return Fired("failed", text, member.place + 1, tuple(failures))
                self._errors.append(answer)
            elif answer is not None:
                kind, text = answer
                return Fired(kind, text, member.place + 1, tuple(failures))
        return Fired("went", "", end, tuple(failures))


def denied(decision: object) -> str | None:
    """Return why a stored decision says no; None when it means to go on.

    `"deny"` and an object with the key `deny` say no, the latter for the reason it holds. Any other value means to go on.
    """
    if isinstance(decision, Mapping) and "deny" in decision:
        return _text(cast("Mapping[object, object]", decision)["deny"], DENIED)
    return DENIED if decision == "deny" else None


async def _ask(topic: Topic, member: _Member, payload: dict[str, object]) -> _Decision | HookError | None:
    """Call one hook and return what it decided, or how it failed."""
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        answer = member.subscriber(payload)
        said = _decision(topic, await answer if inspect.isawaitable(answer) else answer)
    except KeyboardInterrupt:
        raise
    except HookAbort as abort:
        said = _aborted(topic, member, abort)
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling():
            raise
        said = _failure(topic, member, error)
    except BaseException as error:  # noqa: BLE001  whatever a hook raises, it never ends the caller
        said = _failure(topic, member, error)
    if task is not None and task.cancelling() > cancels:
        # The hook was told of the cancellation and kept it for itself.
        raise asyncio.CancelledError
    return said


def _aborted(topic: Topic, member: _Member, abort: HookAbort) -> _Decision | HookError:
    if not POWERS[topic].abort:
        return _failure(topic, member, HookPowerError(topic, "abort"))
    return "aborted", _text(abort.text, NO_REASON)


def _failure(topic: Topic, member: _Member, error: BaseException) -> HookError:
    return HookError(topic, member.name, describe_error(error), type(error).__name__)


def _decision(topic: Topic, answer: object) -> _Decision | None:
    """Return what an answer decides.

    Raises:
        HookPowerError: the topic does not have that power.
        DataError: it is none of the answers there are, or a pause without a reason.
    """
    if answer is None:
        return None
    if answer is SKIP:
        _demand(topic, "skip", has_power=POWERS[topic].skip)
        return "skipped", ""
    if isinstance(answer, Pause):
        _demand(topic, "pause", has_power=POWERS[topic].pause)
        return "paused", _reason(answer)
    raise DataError(f"it returned {_kind(answer)}; a hook of {topic} may return {_answers(topic)}")


def _demand(topic: Topic, power: str, *, has_power: bool) -> None:
    if not has_power:
        raise HookPowerError(topic, power)


def _reason(pause: Pause) -> str:
    reason = cast("object", pause.reason)
    text = _text(reason, "") if isinstance(reason, str) else ""
    if not text:
        raise DataError("Pause(reason) needs a text that says what is to be reviewed")
    return text


def _answers(topic: Topic) -> str:
    powers = POWERS[topic]
    names = [name for name, is_allowed in (("SKIP", powers.skip), ("Pause(reason)", powers.pause)) if is_allowed]
    return " or ".join([", ".join(["None", *names[:-1]]), *names[-1:]])


def _text(value: object, default: str) -> str:
    """Return a reason as safe text, whatever was given as one; the default when it says nothing."""
    try:
        text = clean_text(value if isinstance(value, str) else str(value))
    except Exception:  # noqa: BLE001  a reason whose text cannot be made is none
        text = ""
    says_something = value is not None and bool(text.strip())
    return shorten(text, MAX_TEXT_CHARACTERS) if says_something else default


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _name(subscriber: object) -> str:
    """Return what people call a hook: the name of its function or, for an object that can be called, of its class."""
    function = subscriber.func if isinstance(subscriber, partial) else subscriber
    name = cast("object", getattr(function, "__qualname__", None))
    return shorten(clean_text(name if isinstance(name, str) else type(function).__qualname__), MAX_NAME_CHARACTERS)


def _known(topic: Topic) -> Topic:
    try:
        return _BY_NAME[topic]
    except (KeyError, TypeError):
        raise UnknownTopic(topic, TOPICS) from None


_BY_NAME: Final[dict[str, Topic]] = {topic: topic for topic in TOPICS}
