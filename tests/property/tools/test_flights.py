"""Whatever a body does, and whenever it is told to stop: one outcome, in bounded time, and nothing is left behind."""

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings, strategies as st

from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.testing.manual_clock import ManualClock
from checkrein.tools.dispatch import Dispatcher, DispatchOptions, PreparedCall
from checkrein.tools.function import tool
from checkrein.tools.outcomes import Outcome
from checkrein.values import JsonObject

LIMIT, GRACE, CALLS, SLOTS = 10.0, 5.0, 4, 2

BEHAVIOURS = st.lists(st.sampled_from(["return", "raise", "wait", "deaf", "late"]), min_size=CALLS, max_size=CALLS)
MOVES = st.lists(
    st.tuples(st.sampled_from(["advance", "cancel", "leave", "release"]), st.integers(0, CALLS - 1), st.sampled_from([0.0, 3.0, 5.0, 10.0])),
    max_size=8,
)  # fmt: skip


JSON = [JsonObject({"number": number}) for number in range(CALLS)]


class Play:
    """Four calls with two slots, each with a body of its own behaviour."""

    def __init__(self, behaviours: Sequence[str], *, cancellable: bool, shared: bool) -> None:
        self.clock = ManualClock()
        self.release = asyncio.Event()
        self.signals = [CancelSignal() for _ in range(CALLS)]
        self.began = [0] * CALLS
        self.behaviours = behaviours
        self.running = 0
        held = tool(name="held", timeout_seconds=LIMIT, cancellable=cancellable)(self.body)
        self.made = Dispatcher(
            {"held": held}, clock=self.clock, options=DispatchOptions(limit=SLOTS, grace_seconds=GRACE)
        )
        self.waiting: list[asyncio.Task[Outcome]] = [
            self.clock.spawn(self.call(number, "one" if shared else str(number)), name="caller")
            for number in range(CALLS)
        ]

    async def call(self, number: int, key: str) -> Outcome:
        call = self.made.prepare("held", JSON[number if key != "one" else 0])
        assert isinstance(call, PreparedCall)
        return await self.made.execute(call, ToolContext("1.0", 1, key, self.signals[number]))

    async def body(self, number: int) -> str:
        self.began[number] += 1
        behaviour = self.behaviours[number]
        if behaviour == "raise":
            raise ValueError(behaviour)
        while behaviour != "return" and not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                if behaviour == "wait":
                    raise
                if behaviour == "late":
                    break
        return behaviour

    async def move(self, kind: str, number: int, seconds: float) -> None:
        if kind == "advance":
            await self.clock.advance(seconds)
        elif kind == "cancel":
            self.signals[number].cancel("enough")
        elif kind == "leave":
            self.waiting[number].cancel()
        else:
            self.release.set()
        await self.clock.advance(0)


@settings(max_examples=300)
@given(behaviours=BEHAVIOURS, moves=MOVES, cancellable=st.booleans(), shared=st.booleans())
def test_every_call_has_one_outcome_and_nothing_is_left_behind(
    behaviours: list[str], moves: list[tuple[str, int, float]], *, cancellable: bool, shared: bool
) -> None:
    async def main() -> None:
        play = Play(behaviours, cancellable=cancellable, shared=shared)
        await play.clock.advance(0)
        for move in moves:
            await play.move(*move)
        # In turn each pair of slots may take its whole limit and grace.
        await play.clock.advance((LIMIT + GRACE) * CALLS)
        assert all(task.done() for task in play.waiting)
        assert all(count <= 1 for count in play.began)
        play.release.set()
        await play.clock.advance(0)
        assert (play.clock.timers, play.made.abandoned) == (0, ())
        free = [play.clock.spawn(play.call(number, f"again {number}"), name="again") for number in range(CALLS)]
        play.behaviours = ["return"] * CALLS
        await play.clock.advance(0)
        assert all(task.done() for task in free)

    asyncio.run(main())
