"""Hooks: who is called, in which order, with which powers, and what becomes of a hook that fails."""

import asyncio
import gc
import inspect
from collections.abc import Callable
from functools import partial
from typing import Literal, NoReturn, cast

import pytest

from checkrein.clock import SystemClock
from checkrein.errors import CheckreinError, DataError, UnknownTopic
from checkrein.harness.hooks import (
    MAX_ERRORS,
    MAX_TEXT_CHARACTERS,
    POWERS,
    SKIP,
    TOPICS,
    Fired,
    HookAbort,
    HookAnswer,
    HookError,
    HookPowerError,
    Hooks,
    Pause,
    Skip,
    Subscriber,
    Topic,
    denied,
    powers_table,
)

Power = Literal["abort", "skip", "pause"]
POWER_NAMES: tuple[Power, ...] = ("abort", "skip", "pause")
# Written down a second time on purpose: a change of the table is a change of the contract.
CONTRACT: dict[Topic, tuple[tuple[Power, ...], tuple[str, ...]]] = {
    "before_plan": (("abort", "pause"), ()),
    "after_plan": (("abort", "pause"), ("steps",)),
    "before_step": (("abort", "skip", "pause"), ()),
    "before_tool_call": (("abort", "skip", "pause"), ("arguments",)),
    "after_tool_call": (("abort", "pause"), ("result", "error")),
    "after_step": (("abort", "skip", "pause"), ()),
    "on_error": (("pause",), ()),
    "on_pause": ((), ("resume",)),
    "on_budget_exceeded": ((), ()),
    "on_complete": ((), ()),
}
EVERY_TOPIC = pytest.mark.parametrize("topic", TOPICS)
BOTH = pytest.mark.parametrize("kind", ["plain", "async"])


def saying(answer: object) -> Subscriber:
    """Return a hook that answers whatever a user's untyped code may answer."""

    def hook(_: object) -> object:
        return answer

    return cast("Subscriber", hook)


def raising(error: BaseException) -> Subscriber:
    def hook(_: object) -> NoReturn:
        raise error

    return hook


def noting(called: list[str], name: str, answer: HookAnswer = None) -> Subscriber:
    def hook(_: object) -> HookAnswer:
        called.append(name)
        return answer

    return hook


def either(kind: str, hook: Subscriber) -> Subscriber:
    """Return the hook, or an async one that does the same."""

    async def later(payload: dict[str, object]) -> HookAnswer:
        await asyncio.sleep(0)
        return cast("HookAnswer", hook(payload))

    return hook if kind == "plain" else later


def using(power: Power) -> Subscriber:
    return {"abort": raising(HookAbort("why")), "skip": saying(SKIP), "pause": saying(Pause("why"))}[power]


async def fired(topic: Topic, *subscribers: Subscriber, start: int = 0) -> Fired:
    hooks = Hooks()
    for subscriber in subscribers:
        hooks.on(topic, subscriber)
    return await hooks.fire(topic, {}, start=start)


async def failure_of(topic: Topic, subscriber: Subscriber) -> HookError:
    (failure,) = (await fired(topic, subscriber)).failures
    return failure


# The table.


def test_the_table_is_the_contract() -> None:
    told = {
        topic: (tuple(power for power in POWER_NAMES if getattr(powers, power)), powers.changes)
        for topic, powers in POWERS.items()
    }
    assert told == CONTRACT
    assert tuple(POWERS) == TOPICS


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        cast("dict[str, object]", POWERS)["before_lunch"] = POWERS["before_step"]


def test_the_markdown_table_says_of_every_topic_when_and_what() -> None:
    head, rule, *rows = powers_table().splitlines()
    assert {line.count("|") for line in (head, rule, *rows)} == {7}
    for topic, row in zip(TOPICS, rows, strict=True):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        powers, changes = CONTRACT[topic]
        assert cells[:2] == [f"`{topic}`", POWERS[topic].when]
        assert cells[2] == (", ".join(f"`{name}`" for name in changes) or "–")
        assert cells[3:] == ["yes" if power in powers else "–" for power in POWER_NAMES]


# The powers.


@EVERY_TOPIC
@BOTH
@pytest.mark.parametrize("power", POWER_NAMES)
async def test_a_power_of_the_topic_decides_and_any_other_is_that_hooks_failure(
    topic: Topic, power: Power, kind: str
) -> None:
    called: list[str] = []
    answer = await fired(topic, either(kind, using(power)), noting(called, "after it"))
    if power in CONTRACT[topic][0]:
        decided = {"abort": ("aborted", "why"), "skip": ("skipped", ""), "pause": ("paused", "why")}[power]
        assert (answer.kind, answer.text) == decided
        assert (answer.position, answer.failures, called) == (1, (), [])
    else:
        (failure,) = answer.failures
        assert (failure.topic, failure.type) == (topic, "HookPowerError")
        assert topic in failure.message
        assert power in failure.message
        assert (answer.kind, answer.position, called) == ("went", 2, ["after it"])


def test_a_refused_power_names_topic_and_power() -> None:
    error = HookPowerError("on_pause", "skip")
    assert isinstance(error, CheckreinError)
    assert (error.topic, error.power, error.message) == ("on_pause", "skip", "a hook of on_pause cannot skip")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("too much", "too much"),
        ("\ud800 too much", "\ufffd too much"),
        ("", "no reason was given"),
        (" \n", "no reason was given"),
        (None, "no reason was given"),
        (ValueError("too much"), "too much"),
    ],
)
async def test_an_abort_has_a_text_whatever_it_was_raised_with(given: object, text: str) -> None:
    answer = await fired("before_step", raising(HookAbort(cast("str", given))))
    assert (answer.kind, answer.text) == ("aborted", text)


async def test_an_abort_that_is_raised_as_a_class_aborts() -> None:
    def hook(_: object) -> NoReturn:
        raise HookAbort

    assert (await fired("before_step", hook)).kind == "aborted"


async def test_an_abort_of_a_users_own_class_aborts() -> None:
    class TooExpensive(HookAbort):
        def __init__(self) -> None:
            """Say nothing: not even what the base class would."""

    answer = await fired("before_tool_call", raising(TooExpensive()))
    assert (answer.kind, answer.text) == ("aborted", "no reason was given")


async def test_texts_are_cut_with_a_mark() -> None:
    endless = "x" * 1_000_000
    for subscriber in (raising(HookAbort(endless)), saying(Pause(endless)), raising(ValueError(endless))):
        answer = await fired("before_tool_call", subscriber)
        assert answer.text
        assert len(answer.text) < MAX_TEXT_CHARACTERS + 200
        assert answer.text.endswith("more characters)")


@pytest.mark.parametrize("reason", ["", "  ", None, 3, ["why"]])
async def test_a_pause_without_a_reason_is_a_failure(reason: object) -> None:
    failure = await failure_of("before_step", saying(Pause(cast("str", reason))))
    assert "Pause(reason) needs a text" in failure.message


async def test_a_pause_reason_is_cleaned() -> None:
    assert (await fired("before_step", saying(Pause("a\ud800b")))).text == "a\ufffdb"


@pytest.mark.parametrize(
    ("topic", "answer", "message"),
    [
        ("before_step", False, "it returned bool; a hook of before_step may return None, SKIP or Pause(reason)"),
        ("before_step", "SKIP", "it returned str; a hook of before_step may return None, SKIP or Pause(reason)"),
        ("before_plan", {}, "it returned dict; a hook of before_plan may return None or Pause(reason)"),
        ("on_error", Pause, "it returned the class Pause; a hook of on_error may return None or Pause(reason)"),
        ("on_pause", 0, "it returned int; a hook of on_pause may return None"),
        ("on_complete", HookAbort("no"), "it returned HookAbort; a hook of on_complete may return None"),
    ],
)
@BOTH
async def test_any_other_answer_is_a_failure_that_says_what_may_be_returned(
    topic: Topic, answer: object, message: str, kind: str
) -> None:
    failure = await failure_of(topic, either(kind, saying(answer)))
    assert (failure.type, failure.message) == ("DataError", f"DataError: {message}")


async def test_an_answer_that_lies_about_its_type_is_a_failure() -> None:
    class Liar:
        @property
        def __class__(self) -> NoReturn:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  that is the lie
            raise SystemExit(3)

    assert (await failure_of("before_step", saying(Liar()))).type == "SystemExit"


# Registering.


@pytest.mark.parametrize("topic", ["before_lunch", "", "BEFORE_STEP", None, ["before_step"]])
async def test_an_unknown_topic_is_refused_and_the_ten_are_listed(topic: object) -> None:
    hooks, unknown = Hooks(), cast("Topic", topic)
    uses: tuple[Callable[[], object], ...] = (
        lambda: hooks.on(unknown, saying(None)),
        lambda: hooks.on(unknown),
        lambda: hooks.count(unknown),
        lambda: hooks.has_subscribers(unknown),
        lambda: hooks.fire(unknown, {}).send(None),
    )
    for use in uses:
        with pytest.raises(UnknownTopic) as caught:
            use()
        assert (caught.value.topic, caught.value.topics) == (topic, TOPICS)
        assert all(name in caught.value.message for name in TOPICS)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, DataError)


@pytest.mark.parametrize(("subscriber", "kind"), [(None, "NoneType"), ("guard", "str"), (saying, None)])
def test_only_what_can_be_called_is_registered(subscriber: object, kind: str | None) -> None:
    hooks = Hooks()
    if kind is None:
        hooks.on("before_step", cast("Subscriber", subscriber))
    else:
        with pytest.raises(DataError, match=f"a hook of before_step is a function of the payload, not {kind}"):
            hooks.on("before_step", cast("Subscriber", subscriber))
    assert hooks.count("before_step") == (kind is None)


def test_every_topic_counts_its_own_hooks() -> None:
    hooks = Hooks()
    for amount, topic in enumerate(TOPICS):
        assert not hooks.has_subscribers(topic)
        for _ in range(amount):
            hooks.on(topic, saying(None))
    assert [hooks.count(topic) for topic in TOPICS] == list(range(len(TOPICS)))
    assert [hooks.has_subscribers(topic) for topic in TOPICS] == [False] + [True] * 9


async def test_a_decorator_registers_and_returns_what_it_decorates() -> None:
    hooks, seen = Hooks(), list[object]()

    @hooks.on("before_step")
    def plain(payload: dict[str, object]) -> None:
        seen.append(payload["step"])

    @hooks.on("before_step")
    async def later(payload: dict[str, object]) -> None:
        seen.append(payload["step"])

    await hooks.fire("before_step", {"step": 1})
    assert seen == [1, 1]
    assert plain({"step": 2}) is None
    assert inspect.iscoroutinefunction(later)


async def test_a_hook_that_is_registered_twice_is_called_twice_and_leaves_once() -> None:
    hooks, called = Hooks(), list[str]()
    twice = noting(called, "again")
    leave = hooks.on("after_step", twice)
    hooks.on("after_step", twice)
    await hooks.fire("after_step", {})
    leave()
    leave()
    await hooks.fire("after_step", {})
    assert called == ["again"] * 3
    assert hooks.count("after_step") == 1


async def test_registering_and_leaving_while_firing_count_from_the_next_firing_on() -> None:
    hooks, called = Hooks(), list[str]()

    def first(_: object) -> None:
        called.append("first")
        leave()
        hooks.on("on_error", noting(called, "new"))

    hooks.on("on_error", first)
    leave = hooks.on("on_error", noting(called, "leaving"))
    answer = await hooks.fire("on_error", {})
    assert called == ["first", "leaving"]
    called.clear()
    # What joined meanwhile is one of the remaining hooks of that subject.
    await hooks.fire("on_error", {}, start=answer.position)
    assert called == ["new"]
    called.clear()
    await hooks.fire("on_error", {})
    assert called == ["first", "new"]


# Calling.


@EVERY_TOPIC
async def test_a_topic_without_hooks_goes_on(topic: Topic) -> None:
    assert await fired(topic) == Fired("went", "", 0, ())


async def test_hooks_see_one_payload_and_what_those_before_them_changed() -> None:
    payload: dict[str, object] = {"goal": "g", "steps": 1}

    def change(given: dict[str, object]) -> None:
        assert given is payload
        given["steps"] = 2

    async def see(given: dict[str, object]) -> None:
        await asyncio.sleep(0)
        given["seen"] = given["steps"]

    hooks = Hooks()
    hooks.on("after_plan", change)
    hooks.on("after_plan", see)
    await hooks.fire("after_plan", payload)
    assert payload == {"goal": "g", "steps": 2, "seen": 2}


async def test_a_plain_hook_is_called_on_the_loop_and_any_awaitable_is_awaited() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[HookAnswer] = loop.create_future()
    hooks, called = Hooks(), list[object]()
    hooks.on("before_step", lambda _: called.append(asyncio.get_running_loop()))
    hooks.on("before_step", lambda _: future)
    loop.call_soon(future.set_result, SKIP)
    assert (await hooks.fire("before_step", {})).kind == "skipped"
    assert called == [loop]


async def test_after_a_pause_the_remaining_hooks_are_called_and_no_other() -> None:
    hooks, called = Hooks(), list[str]()
    for name, answer in (("a", None), ("b", Pause("look")), ("c", None), ("d", Pause("look too")), ("e", None)):
        hooks.on("before_tool_call", noting(called, name, answer))
    positions = [0]
    while (answer := await hooks.fire("before_tool_call", {}, start=positions[-1])).kind == "paused":
        positions.append(answer.position)
        called.append("|")
    assert (positions, "".join(called)) == ([0, 2, 4], "ab|cd|e")


async def test_a_place_stays_right_when_hooks_leave_between_pause_and_decision() -> None:
    hooks, called = Hooks(), list[str]()
    leave = hooks.on("before_step", noting(called, "a"))
    hooks.on("before_step", noting(called, "b", Pause("look")))
    hooks.on("before_step", noting(called, "c"))
    answer = await hooks.fire("before_step", {})
    leave()
    await hooks.fire("before_step", {}, start=answer.position)
    assert called == ["a", "b", "c"]


# Failing.

FAILURES = {
    "ValueError": ValueError("boom"),
    "StopIteration": StopIteration("boom"),
    "ExceptionGroup": ExceptionGroup("boom", [HookAbort("no")]),
    "SystemExit": SystemExit("boom"),
    "CancelledError": asyncio.CancelledError("boom"),
    "GeneratorExit": GeneratorExit("boom"),
    "BaseException": BaseException("boom"),
}


@EVERY_TOPIC
@BOTH
@pytest.mark.parametrize("name", FAILURES)
async def test_whatever_a_hook_raises_is_its_failure(topic: Topic, kind: str, name: str) -> None:
    called: list[str] = []
    hooks = Hooks()
    hooks.on(topic, noting(called, "before"))
    hooks.on(topic, either(kind, raising(FAILURES[name])))
    hooks.on(topic, noting(called, "after"))
    answer = await hooks.fire(topic, {})
    (failure,) = answer.failures
    # An async function cannot raise StopIteration.
    expected = "RuntimeError" if (name, kind) == ("StopIteration", "async") else name
    assert (failure.topic, failure.type) == (topic, expected)
    if topic == "before_tool_call":
        text = f"hook {failure.subscriber} failed: {failure.message}"
        assert (answer.kind, answer.text, answer.position) == ("failed", text, 2)
        assert (called, hooks.errors) == (["before"], ())
    else:
        assert (answer.kind, answer.text, answer.position) == ("went", "", 3)
        assert (called, hooks.errors) == (["before", "after"], (failure,))


async def test_a_decision_after_a_failure_still_decides() -> None:
    answer = await fired("before_step", raising(ValueError("boom")), saying(SKIP))
    assert (answer.kind, answer.position, len(answer.failures)) == ("skipped", 2, 1)


async def test_a_failure_says_who_failed_and_how() -> None:
    def guard(_: object) -> NoReturn:
        raise ValueError("no \ud800 rate for 'GBP'")

    class Policy:
        def __call__(self, _: object) -> NoReturn:
            raise LookupError

    names = [(await failure_of("before_step", hook)).subscriber for hook in (guard, Policy(), partial(guard))]
    assert [name.rpartition(".")[2] for name in names] == ["guard", "Policy", "guard"]
    assert (await failure_of("before_step", guard)).message == "ValueError: no \ufffd rate for 'GBP'"
    assert (await failure_of("before_step", Policy())).message == "LookupError"


async def test_an_error_without_a_text_is_told_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert (await failure_of("on_complete", raising(Mute()))).message == "Mute"


async def test_the_last_hundred_failures_are_kept() -> None:
    hooks = Hooks()

    def fail(payload: dict[str, object]) -> NoReturn:
        raise ValueError(payload["number"])

    hooks.on("after_step", fail)
    for number in range(MAX_ERRORS + 20):
        await hooks.fire("after_step", {"number": number})
    assert [error.message for error in hooks.errors] == [f"ValueError: {number}" for number in range(20, 120)]


async def test_a_failing_hook_of_on_error_is_not_called_for_its_own_failure() -> None:
    hooks, called = Hooks(), list[str]()

    def fail(_: object) -> NoReturn:
        called.append("on_error")
        raise ValueError

    hooks.on("on_error", fail)
    await hooks.fire("on_error", {})
    assert called == ["on_error"]


async def test_an_interrupt_from_the_keyboard_passes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        await fired("before_step", raising(KeyboardInterrupt()))


# The caller's own end.


@EVERY_TOPIC
@pytest.mark.parametrize("manner", ["lets it pass", "returns", "skips", "raises", "aborts"])
async def test_a_hook_cannot_keep_the_callers_cancellation_for_itself(topic: Topic, manner: str) -> None:
    began, called = asyncio.Event(), list[str]()

    async def hook(_: object) -> HookAnswer:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if manner == "raises":
                raise ValueError from None
            if manner == "aborts":
                raise HookAbort("no") from None
            if manner == "lets it pass":
                raise
        return SKIP if manner == "skips" else None

    task = SystemClock().spawn(fired(topic, hook, noting(called, "after")), name="firing")
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (task.cancelled(), called) == (True, [])


@EVERY_TOPIC
async def test_a_cancellation_that_was_asked_for_before_the_firing_ends_it(topic: Topic) -> None:
    called: list[str] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await fired(topic, either("async", noting(called, "never")), noting(called, "after"))

    task = SystemClock().spawn(work(), name="firing")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert called == []


async def test_a_hook_that_took_back_its_own_time_limit_goes_on() -> None:
    async def patient(_: object) -> HookAnswer:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return Pause("nobody answered")
        return None

    assert (await fired("before_step", patient)).kind == "paused"


async def test_a_firing_that_is_closed_ends_and_calls_nobody_else() -> None:
    called: list[str] = []

    async def hook(_: object) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            called.append("closed")

    firing = fired("before_step", hook, noting(called, "after"))
    firing.send(None)
    firing.close()
    assert called == ["closed"]


async def test_a_failure_keeps_nothing_of_the_payload_alive() -> None:
    class Large:
        def __del__(self) -> None:
            gone.append(self.__class__.__name__)

    gone: list[str] = []
    hooks = Hooks()
    hooks.on("on_error", lambda _: (_ for _ in ()).throw(ValueError))
    gc.disable()
    try:
        await hooks.fire("on_error", {"large": Large()})
        assert (len(hooks.errors), gone) == (1, ["Large"])
    finally:
        gc.enable()


# Decisions.


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        ("deny", "a person denied it"),
        ({"deny": "too much"}, "too much"),
        ({"deny": "too much", "by": "ann"}, "too much"),
        ({"deny": "a\ud800b"}, "a\ufffdb"),
        ({"deny": None}, "a person denied it"),
        ({"deny": ""}, "a person denied it"),
        ({"deny": "  "}, "a person denied it"),
        ({"deny": 7}, "7"),
        ("allow", None),
        ("Deny", None),
        ("", None),
        (None, None),
        (True, None),
        (False, None),
        (["deny"], None),
        ({}, None),
        ({"allow": "deny"}, None),
    ],
)
def test_a_decision_denies_or_means_to_go_on(decision: object, reason: str | None) -> None:
    assert denied(decision) == reason


def test_a_long_reason_to_deny_is_cut() -> None:
    assert len(denied({"deny": "x" * 1_000_000}) or "") < MAX_TEXT_CHARACTERS + 100


def test_skip_is_one_value_with_its_own_name() -> None:
    assert repr(SKIP) == "SKIP"
    assert list(Skip) == [SKIP]
