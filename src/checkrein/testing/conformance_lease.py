"""What a store must do with leases: claim, renew, release, and nothing but its own clock decides when one is over."""

import asyncio

from checkrein.errors import Conflict, DuplicateEvent, LeaseHeld, RunNotFound
from checkrein.ports.store import Appended, NewLease, RunQuery, RunStore
from checkrein.testing.conformance_base import (
    LEASE_SECONDS,
    ConformanceBase,
    claim,
    head,
    refused,
    row,
    rows,
    same,
    scenario,
)

__all__ = ["LeaseConformance"]

JUST_BEFORE = 1.0
"""How long before its end a lease is looked at; a store on a real clock needs some room."""


class LeaseConformance(ConformanceBase):
    """Leases."""

    @scenario
    async def test_a_run_begins_without_a_lease(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        lease = (await store.get("run")).lease
        same((lease.owner, lease.epoch, lease.expires_in, lease.is_released, lease.is_live), ("", 0, 0.0, False, False))

    @scenario
    async def test_a_run_with_the_history_of_another_goes_on_with_its_epochs(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head(), epoch=3)
        lease = (await store.get("run")).lease
        same((lease.owner, lease.epoch, lease.expires_in, lease.is_released, lease.is_live), ("", 3, 0.0, False, False))
        error = await refused(Conflict, store.renew("run", epoch=3, seconds=LEASE_SECONDS))
        same(error.code, "lease_lost")
        same(await store.release("run", epoch=3), False)
        same(await claim(store, "run", "me"), 4)
        error = await refused(Conflict, store.append("run", version=2, epoch=3, rows=rows("late"), head=head()))
        same((error.code, error.actual), ("lease_lost", (2, 4)))

    @scenario
    async def test_a_claim_raises_the_epoch_and_appends_its_batch(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head("RECEIVED"))
        lease = NewLease(owner="me", seconds=LEASE_SECONDS)
        appended = await store.claim("run", version=1, lease=lease, rows=rows("b", "c"), head=head("PLANNED"))
        same(appended, Appended(version=3, is_known=False))
        run = await store.get("run")
        same((run.version, run.head), (3, head("PLANNED")))
        same((run.lease.owner, run.lease.epoch, run.lease.is_released, run.lease.is_live), ("me", 1, False, True))
        same(LEASE_SECONDS - JUST_BEFORE < run.lease.expires_in <= LEASE_SECONDS, True)

    @scenario
    async def test_a_live_lease_keeps_others_out_until_it_is_over(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        await claim(store, "run", "first")
        error = await refused(LeaseHeld, claim(store, "run", "second"))
        same((error.run_id, error.owner), ("run", "first"))
        same(0 < error.expires_in <= LEASE_SECONDS, True)
        await self.pass_time(LEASE_SECONDS - JUST_BEFORE)
        await refused(LeaseHeld, claim(store, "run", "second", dead_owner="third"))
        run = await store.get("run")
        same((run.version, run.lease.owner, run.lease.epoch), (2, "first", 1))
        await self.pass_time(JUST_BEFORE)
        same((await store.get("run")).lease.is_live, False)
        same(await claim(store, "run", "second"), 2)
        error = await refused(Conflict, store.append("run", version=3, epoch=1, rows=rows("late"), head=head()))
        same(error.code, "lease_lost")

    @scenario
    async def test_the_holder_itself_may_claim_again(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        await claim(store, "run", "me")
        same(await claim(store, "run", "me"), 2)
        await refused(Conflict, store.append("run", version=3, epoch=1, rows=rows("late"), head=head()))

    @scenario
    async def test_the_lease_of_an_owner_known_to_be_dead_is_over_at_once(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        await claim(store, "run", "dead")
        await refused(LeaseHeld, claim(store, "run", "me", dead_owner="another"))
        same(await claim(store, "run", "me", dead_owner="dead"), 2)
        same((await store.get("run")).lease.owner, "me")

    @scenario
    async def test_a_released_lease_is_free_at_once(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        await claim(store, "run", "first")
        same(await store.release("run", epoch=1), True)
        lease = (await store.get("run")).lease
        same(
            (lease.owner, lease.epoch, lease.expires_in, lease.is_released, lease.is_live),
            ("first", 1, 0.0, True, False),
        )
        same(await store.release("run", epoch=1), False)
        same(await claim(store, "run", "second"), 2)
        lease = (await store.get("run")).lease
        same((lease.owner, lease.is_released, lease.is_live), ("second", False, True))
        same(await store.release("run", epoch=1), False)
        same((await store.get("run")).lease.is_live, True)

    @scenario
    async def test_nobody_can_release_or_renew_what_nobody_holds(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        for epoch in (0, 1):
            same(await store.release("run", epoch=epoch), False)
            error = await refused(Conflict, store.renew("run", epoch=epoch, seconds=1))
            same((error.code, error.actual), ("lease_lost", (1, 0)))

    @scenario
    async def test_a_renewed_lease_ends_later(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        await claim(store, "run", "first")
        await self.pass_time(LEASE_SECONDS - JUST_BEFORE)
        await store.renew("run", epoch=1, seconds=LEASE_SECONDS)
        await self.pass_time(LEASE_SECONDS - JUST_BEFORE)
        await refused(LeaseHeld, claim(store, "run", "second"))
        await self.pass_time(JUST_BEFORE)
        same(await claim(store, "run", "second"), 2)

    @scenario
    async def test_a_late_renewal_counts_when_nobody_else_took_the_run(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        await claim(store, "run", "first")
        await self.pass_time(2 * LEASE_SECONDS)
        same((await store.get("run")).lease.is_live, False)
        await store.renew("run", epoch=1, seconds=LEASE_SECONDS)
        same((await store.get("run")).lease.is_live, True)
        await refused(LeaseHeld, claim(store, "run", "second"))

    @scenario
    async def test_a_lease_that_was_lost_or_released_cannot_be_renewed(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        await claim(store, "run", "first")
        await store.release("run", epoch=1)
        error = await refused(Conflict, store.renew("run", epoch=1, seconds=LEASE_SECONDS))
        same((error.run_id, error.code), ("run", "lease_lost"))
        await claim(store, "run", "second")
        error = await refused(Conflict, store.renew("run", epoch=1, seconds=LEASE_SECONDS))
        same((error.code, error.actual), ("lease_lost", (3, 2)))

    @scenario
    async def test_a_refused_claim_changes_nothing(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        lease = NewLease(owner="me", seconds=LEASE_SECONDS)
        for version in (0, 2):
            error = await refused(
                Conflict, store.claim("run", version=version, lease=lease, rows=rows("b"), head=head())
            )
            same((error.code, error.actual), ("stale_version", (1, 0)))
        taken = [row("a", "other")]
        await refused(DuplicateEvent, store.claim("run", version=1, lease=lease, rows=taken, head=head()))
        run = await store.get("run")
        same((run.version, run.lease.owner, run.lease.epoch), (1, "", 0))

    @scenario
    async def test_a_known_claim_returns_its_outcome_and_takes_nothing(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        lease = NewLease(owner="me", seconds=LEASE_SECONDS)
        await store.claim("run", version=1, lease=lease, rows=rows("b"), head=head())
        again = await store.claim("run", version=1, lease=lease, rows=rows("b"), head=head())
        same(again, Appended(version=2, is_known=True))
        same((await store.get("run")).lease.epoch, 1)

    @scenario
    async def test_of_two_claims_exactly_one_is_accepted(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        for version in range(1, 12):
            outcomes = await asyncio.gather(
                *(
                    store.claim(
                        "run",
                        version=version,
                        lease=NewLease(owner=owner, seconds=1),
                        rows=rows(f"{owner}{version}"),
                        head=head(),
                    )
                    for owner in "xyz"
                ),
                return_exceptions=True,
            )
            same(sorted(type(outcome).__name__ for outcome in outcomes), ["Appended", "LeaseHeld", "LeaseHeld"])
            run = await store.get("run")
            same((run.version, run.lease.epoch), (version + 1, version))
            await store.release("run", epoch=version)

    @scenario
    async def test_claimable_runs_are_those_that_a_worker_may_take_now(self, store: RunStore) -> None:
        async def claimable() -> list[str]:
            return sorted(run.run_id for run in await store.list_runs(RunQuery(claimable=True)))

        await store.create("free", "", rows("a"), head())
        await store.create("held", "", rows("a"), head())
        await store.create("blocked", "", rows("a"), head("BLOCKED", is_claimable=False))
        await store.create("ended", "", rows("a"), head("SUCCEEDED"))
        await claim(store, "held", "me")
        same(await claimable(), ["free"])
        await self.pass_time(LEASE_SECONDS)
        same(await claimable(), ["free", "held"])
        await store.renew("held", epoch=1, seconds=LEASE_SECONDS)
        same(await claimable(), ["free"])
        await store.release("held", epoch=1)
        same(await claimable(), ["free", "held"])
        await store.append("blocked", version=1, epoch=None, rows=rows("b"), head=head())
        await store.append("free", version=1, epoch=None, rows=rows("b"), head=head("FAILED"))
        same(await claimable(), ["blocked", "held"])

    @scenario
    async def test_leases_of_unknown_runs_are_refused(self, store: RunStore) -> None:
        lease = NewLease(owner="me", seconds=1)
        await refused(RunNotFound, store.claim("none", version=0, lease=lease, rows=rows("a"), head=head()))
        await refused(RunNotFound, store.renew("none", epoch=1, seconds=1))
        await refused(RunNotFound, store.release("none", epoch=1))
