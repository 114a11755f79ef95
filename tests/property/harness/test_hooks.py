"""Whatever the hooks of a topic do, and wherever a firing begins: what is called and decided is what a few lines predict."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from hypothesis import given, settings, strategies as st

from checkrein.harness.hooks import POWERS, SKIP, TOPICS, HookAbort, HookAnswer, Hooks, Pause, Topic


@dataclass(frozen=True)
class Play:
    """How one hook behaves: what it does, whether it is async, and whether it leaves before the firing."""

    deed: str
    is_async: bool
    leaves: bool


DEEDS = ("none", "abort", "skip", "pause", "raise", "stray cancel", "exit", "odd answer", "empty pause")
DECIDED = {"abort": "aborted", "skip": "skipped", "pause": "paused"}
PLAYS = st.lists(
    st.builds(
        Play,
        st.sampled_from(("none",) * 6 + DEEDS),
        st.booleans(),
        st.sampled_from((False, False, True)),
    ),
    max_size=8,
)


def act(deed: str) -> HookAnswer:
    if deed in {"abort", "raise", "stray cancel", "exit"}:
        _raise(deed)
    answers: dict[str, object] = {"skip": SKIP, "pause": Pause("p"), "odd answer": 1, "empty pause": Pause("")}
    return answers.get(deed)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  an odd answer is what is tried


def _raise(deed: str) -> NoReturn:
    raise {"abort": HookAbort("a"), "stray cancel": asyncio.CancelledError(), "exit": SystemExit(1)}.get(
        deed, ValueError(deed)
    )


def join(hooks: Hooks, topic: Topic, number: int, play: Play, called: list[int]) -> Callable[[], None]:
    def plain(_: object) -> HookAnswer:
        called.append(number)
        return act(play.deed)

    async def later(_: object) -> HookAnswer:
        called.append(number)
        await asyncio.sleep(0)
        return act(play.deed)

    return hooks.on(topic, later if play.is_async else plain)


def predicted(topic: Topic, plays: list[Play], start: int) -> tuple[list[int], str, int, int]:
    """Return who is called, what is decided, where a later firing goes on, and how many failed."""
    called: list[int] = []
    failures = 0
    for number, play in enumerate(plays):
        if number < start or play.leaves:
            continue
        called.append(number)
        if play.deed in DECIDED and getattr(POWERS[topic], play.deed):
            return called, DECIDED[play.deed], number + 1, failures
        failures += play.deed != "none"
        if play.deed != "none" and topic == "before_tool_call":
            return called, "failed", number + 1, failures
    return called, "went", max(start, len(plays)), failures


@settings(max_examples=400)
@given(topic=st.sampled_from(TOPICS), plays=PLAYS, start=st.integers(0, 10))
def test_a_firing_calls_and_decides_as_predicted(topic: Topic, plays: list[Play], start: int) -> None:
    async def main() -> None:
        hooks, called = Hooks(), list[int]()
        leaves = [join(hooks, topic, number, play, called) for number, play in enumerate(plays)]
        for play, leave in zip(plays, leaves, strict=True):
            if play.leaves:
                leave()
        answer = await hooks.fire(topic, {}, start=start)
        assert (called, answer.kind, answer.position, len(answer.failures)) == predicted(topic, plays, start)
        kept = answer.failures[:-1] if answer.kind == "failed" else answer.failures
        assert hooks.errors == kept
        assert bool(answer.text) == (answer.kind in {"aborted", "paused", "failed"})

    asyncio.run(main())


@settings(max_examples=300)
@given(topic=st.sampled_from(TOPICS), plays=PLAYS)
def test_firings_that_go_on_where_the_last_one_decided_call_everybody_once_in_order(
    topic: Topic, plays: list[Play]
) -> None:
    async def main() -> None:
        hooks, called = Hooks(), list[int]()
        for number, play in enumerate(plays):
            join(hooks, topic, number, play, called)
        answer = await hooks.fire(topic, {})
        while answer.kind != "went":
            answer = await hooks.fire(topic, {}, start=answer.position)
        assert called == list(range(len(plays)))
        assert answer.position == hooks.count(topic) == len(plays)

    asyncio.run(main())
