"""Whatever children a run starts, ends, forgets or is refused: what is used and set aside stays within its limits, and each share is given back once."""

from functools import reduce

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from checkrein.errors import Rejected
from checkrein.kernel.budget import COUNTED, LIMITS, Amounts, Budget
from checkrein.kernel.events import (
    Blocked,
    BudgetReserved,
    BudgetSettled,
    CancelRequested,
    EventData,
    Failed,
    Unblocked,
)
from checkrein.kernel.run import fold_run
from tests.counts import amount
from tests.unit.kernel.story import Story, cause, done, grant, running

amounts = st.builds(Amounts, turns=st.integers(0, 3), tool_calls=st.integers(0, 3), steps=st.integers(0, 3))
limits = st.builds(Budget, turns=st.integers(0, 6), tool_calls=st.integers(0, 6), steps=st.integers(0, 6))
children = st.sampled_from(("a", "b", "c", "d", "e"))
ENDS: tuple[EventData, ...] = (CancelRequested("enough"), Failed("gave_up", "no"))


class Families(RuleBasedStateMachine):
    """One parent, beside an account book that knows nothing of the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.story: Story
        self.shares: dict[str, Amounts] = {}
        self.spent = Amounts()
        self.calls = 0

    @initialize(budget=limits)
    def begin(self, budget: Budget) -> None:
        self.story = running(budget)

    def _accepted(self, data: EventData) -> bool:
        try:
            self.story.worker(data)
        except Rejected:
            return False
        return True

    @rule(child=children, share=amounts)
    def reserve(self, child: str, share: Amounts) -> None:
        if self._accepted(BudgetReserved(child, share)):
            assert child not in self.shares
            self.shares[child] = share

    @rule(child=children, used=amounts)
    def settle(self, child: str, used: Amounts) -> None:
        if self._accepted(BudgetSettled(child, used)):
            share = self.shares.pop(child)
            assert all(getattr(used, name) <= getattr(share, name) for name in COUNTED)
            self.spent = self.spent.plus(used)

    @rule()
    def call(self) -> None:
        if self._accepted(grant(f"1.{self.calls}")):
            assert self._accepted(done(f"1.{self.calls}"))
            self.calls += 1
            self.spent = self.spent.plus(Amounts(tool_calls=1))

    @rule(is_open=st.booleans())
    def block(self, *, is_open: bool) -> None:
        self._accepted(Blocked(cause()) if is_open else Unblocked("question"))

    @rule(end=st.sampled_from(ENDS))
    def end(self, end: EventData) -> None:
        if self._accepted(end):
            for share in self.shares.values():
                self.spent = self.spent.plus(share)
            self.shares.clear()

    @rule()
    def take_over(self) -> None:
        if not self.story.state.phase.is_terminal:
            self.story.lease()

    @invariant()
    def nothing_exceeds_its_limit(self) -> None:
        budget = self.story.state.budget
        for name in LIMITS:
            limit = budget.limits.limit(name)
            assert limit is None or budget.taken(name) <= limit

    @invariant()
    def the_book_agrees(self) -> None:
        state = self.story.state
        assert state.budget.used == self.spent
        assert {item.child: item.amounts for item in state.reservations} == self.shares
        assert state.budget.reserved == reduce(Amounts.plus, self.shares.values(), Amounts())
        assert fold_run(self.story.log) == state


TestFamilies = Families.TestCase
TestFamilies.settings = settings(max_examples=amount(100), stateful_step_count=30, deadline=None)
