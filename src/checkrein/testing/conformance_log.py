"""What a store must do with logs: create, append by compare-and-set, remember event ids, read and follow."""

import asyncio

from checkrein.errors import Conflict, DuplicateEvent, RunNotFound
from checkrein.ports.store import Appended, RunHead, RunStore
from checkrein.testing.conformance_base import ConformanceBase, claim, head, refused, row, rows, same, scenario

__all__ = ["LogConformance"]


class LogConformance(ConformanceBase):
    """Logs."""

    @scenario
    async def test_a_new_run_has_its_first_batch_and_its_head(self, store: RunStore) -> None:
        first = head("RECEIVED", at=7.5)
        same(await store.create("run", "", rows("a", "b"), first), "run")
        run = await store.get("run")
        same((run.run_id, run.request_id, run.version, run.head), ("run", "", 2, first))
        same(run.created_at, self.clock.now())
        same(list(await store.read("run")), [b"a:", b"b:"])

    @scenario
    async def test_a_request_id_names_the_same_run_for_ever(self, store: RunStore) -> None:
        await store.create("run", "request", rows("a"), head())
        same(await store.create("other", "request", rows("b"), head()), "run")
        same(await store.create("run", "request", rows("b"), head()), "run")
        same(await store.find_request("request"), "run")
        same(await store.find_request("another"), None)
        await refused(RunNotFound, store.get("other"))
        same(list(await store.read("run")), [b"a:"])

    @scenario
    async def test_creating_a_run_again_writes_nothing(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head("RECEIVED"))
        await store.append("run", version=1, epoch=None, rows=rows("b"), head=head("PLANNED"))
        same(await store.create("run", "", rows("a"), head("RECEIVED")), "run")
        run = await store.get("run")
        same((run.version, run.head.phase), (2, "PLANNED"))

    @scenario
    async def test_a_taken_run_id_is_refused(self, store: RunStore) -> None:
        await store.create("run", "request", rows("a"), head())
        await store.create("plain", "", rows("a"), head())
        for run_id, request_id, batch in (
            ("run", "another", rows("a")),
            ("run", "", rows("a")),
            ("plain", "another", rows("a")),
            ("plain", "", rows("b")),
            ("plain", "", [row("a", "other")]),
        ):
            error = await refused(DuplicateEvent, store.create(run_id, request_id, batch, head()))
            same((error.run_id, error.event_id), (run_id, batch[0].event_id))
        same(await store.find_request("another"), None)

    @scenario
    async def test_a_batch_gets_the_next_offsets_and_sets_the_head(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head("RECEIVED"))
        last = RunHead(
            phase="BLOCKED",
            is_terminal=False,
            is_claimable=False,
            task="née",
            task_version=7,
            goal="ein Ziel\0\n☃",
            updated_at=-2.5,
        )
        appended = await store.append("run", version=1, epoch=None, rows=rows("b", "c", "d"), head=last)
        same(appended, Appended(version=4, is_known=False))
        same(list(await store.read("run")), [b"a:", b"b:", b"c:", b"d:"])
        same(
            [await store.find_event("run", event_id) for event_id in "ad"],
            [
                (0, row("a").fingerprint),
                (3, row("d").fingerprint),
            ],
        )
        run = await store.get("run")
        same((run.version, run.head), (4, last))

    @scenario
    async def test_another_version_is_refused_and_nothing_is_written(self, store: RunStore) -> None:
        await store.create("run", "", rows("a", "b"), head("RECEIVED"))
        for version in (0, 1, 3, 99):
            error = await refused(
                Conflict, store.append("run", version=version, epoch=None, rows=rows("c", "d"), head=head("FAILED"))
            )
            same((error.run_id, error.code), ("run", "stale_version"))
            same((error.expected, error.actual), ((version, None), (2, 0)))
        run = await store.get("run")
        same((run.version, run.head.phase), (2, "RECEIVED"))
        same(await store.find_event("run", "c"), None)

    @scenario
    async def test_of_two_appends_at_one_version_exactly_one_is_accepted(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        for version in range(1, 20):
            outcomes = await asyncio.gather(
                *(
                    store.append("run", version=version, epoch=None, rows=rows(f"{name}{version}"), head=head())
                    for name in "xyz"
                ),
                return_exceptions=True,
            )
            same(
                [outcome for outcome in outcomes if isinstance(outcome, Appended)],
                [Appended(version=version + 1, is_known=False)],
            )
            same(sum(isinstance(outcome, Conflict) for outcome in outcomes), 2)
        same(len(await store.read("run")), 20)

    @scenario
    async def test_many_writers_leave_no_gap_and_lose_nothing(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())

        async def write(name: str) -> None:
            for number in range(10):
                version = 0
                while version >= 0:
                    version = (await store.get("run")).version
                    try:
                        await store.append(
                            "run", version=version, epoch=None, rows=rows(f"{name}{number}"), head=head()
                        )
                    except Conflict:
                        continue
                    version = -1

        await asyncio.gather(*map(write, "bcde"))
        bodies = list(await store.read("run"))
        same(sorted(bodies), sorted([b"a:", *(f"{name}{number}:".encode() for name in "bcde" for number in range(10))]))
        same((await store.get("run")).version, len(bodies))
        for offset, body in enumerate(bodies):
            same((await store.find_event("run", body.decode().rstrip(":")) or (None,))[0], offset)

    @scenario
    async def test_another_epoch_is_refused_before_the_version_is_looked_at(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        await claim(store, "run", "first")
        await store.release("run", epoch=1)
        await claim(store, "run", "second")
        for version, epoch in ((3, 1), (3, 0), (3, 3), (2, 1)):
            error = await refused(
                Conflict, store.append("run", version=version, epoch=epoch, rows=rows("b"), head=head())
            )
            same((error.code, error.expected, error.actual), ("lease_lost", (version, epoch), (3, 2)))
        error = await refused(Conflict, store.append("run", version=2, epoch=2, rows=rows("b"), head=head()))
        same(error.code, "stale_version")
        same((await store.append("run", version=3, epoch=2, rows=rows("b"), head=head())).version, 4)
        same((await store.append("run", version=4, epoch=None, rows=rows("c"), head=head())).version, 5)

    @scenario
    async def test_a_known_batch_returns_its_outcome_and_writes_nothing(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        batch = rows("b", "c")
        await store.append("run", version=1, epoch=None, rows=batch, head=head("PLANNED"))
        await claim(store, "run", "owner")
        known = Appended(version=3, is_known=True)
        # Whatever version or epoch the repeating caller names: what is recorded is decided.
        for version, epoch in ((1, None), (4, 1), (4, None), (77, 9)):
            same(await store.append("run", version=version, epoch=epoch, rows=batch, head=head("FAILED")), known)
        await store.append("run", version=4, epoch=1, rows=rows("end"), head=head("SUCCEEDED"))
        same(await store.append("run", version=1, epoch=None, rows=batch, head=head("FAILED")), known)
        same(len(await store.read("run")), 5)
        same((await store.get("run")).head.phase, "SUCCEEDED")

    @scenario
    async def test_a_known_event_id_with_other_content_is_refused(self, store: RunStore) -> None:
        await store.create("run", "", rows("a", "b"), head())
        other = row("b", "other")
        for version, batch, taken in (
            (2, [other], ("b", 1)),
            (1, [other], ("b", 1)),
            (2, [row("c"), row("a", "other"), row("d")], ("a", 0)),
        ):
            error = await refused(
                DuplicateEvent, store.append("run", version=version, epoch=None, rows=batch, head=head())
            )
            same((error.event_id, error.offset), taken)
        same(list(await store.read("run")), [b"a:", b"b:"])

    @scenario
    async def test_a_new_batch_with_a_known_later_event_is_refused_whole(self, store: RunStore) -> None:
        await store.create("run", "", rows("a", "b"), head())
        error = await refused(
            DuplicateEvent, store.append("run", version=2, epoch=None, rows=rows("c", "d", "b"), head=head())
        )
        same((error.event_id, error.offset), ("b", 1))
        same([await store.find_event("run", event_id) for event_id in "cd"], [None, None])
        same((await store.get("run")).version, 2)

    @scenario
    async def test_runs_do_not_see_each_others_event_ids(self, store: RunStore) -> None:
        await store.create("one", "", rows("a"), head())
        await store.create("two", "", [row("a", "other")], head())
        same(await store.find_event("two", "a"), (0, row("a", "other").fingerprint))
        same(await store.find_event("none", "a"), None)

    @scenario
    async def test_a_terminal_run_is_never_written_again(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        await store.append("run", version=1, epoch=None, rows=rows("end"), head=head("FAILED"))
        error = await refused(Conflict, store.append("run", version=2, epoch=None, rows=rows("late"), head=head()))
        same((error.code, error.actual), ("stale_version", (2, 0)))
        await refused(Conflict, claim(store, "run", "owner"))
        run = await store.get("run")
        same((run.version, run.head, run.lease.epoch), (2, head("FAILED"), 0))

    @scenario
    async def test_bodies_come_back_byte_for_byte(self, store: RunStore) -> None:
        bodies = [
            bytes(range(256)),
            b"\0",
            b"{}",
            "née ☃ \N{SNAKE}".encode(),
            b"\xff" * 1_000_000,
            b"'; DROP TABLE runs; --",
        ]
        batch = [row(f"e{number}", body=body) for number, body in enumerate(bodies)]
        await store.create("run", "", batch, head())
        same(list(await store.read("run")), bodies)

    @scenario
    async def test_any_part_of_a_log_can_be_read(self, store: RunStore) -> None:
        await store.create("run", "", rows(*"abcde"), head())
        whole = [f"{name}:".encode() for name in "abcde"]
        for offset in range(8):
            same(list(await store.read("run", offset)), whole[offset:])
            for limit in range(8):
                same(list(await store.read("run", offset, limit)), whole[offset : offset + limit])

    @scenario
    async def test_long_logs_are_read_whole(self, store: RunStore) -> None:
        names = [f"e{number}" for number in range(4_001)]
        await store.create("run", "", rows(*names), head())
        whole = [f"{name}:".encode() for name in names]
        same(list(await store.read("run")), whole)
        same(list(await store.read("run", 1_999, 2_001)), whole[1_999:4_000])

    @scenario
    async def test_a_follower_sees_the_log_and_what_comes_until_the_run_ends(self, store: RunStore) -> None:
        await store.create("run", "", rows("a", "b"), head())
        await store.create("other", "", rows("a"), head())
        seen: list[bytes] = []

        async def follow(offset: int) -> list[bytes]:
            return [body async for body in store.follow("run", offset)]

        followers = [self.clock.spawn(follow(offset), name="follower") for offset in (0, 1, 3)]
        async for body in store.follow("run"):
            seen.append(body)
            if len(seen) < 6:
                await store.append("other", version=len(seen), epoch=None, rows=rows(f"o{len(seen)}"), head=head())
                name, phase = f"n{len(seen)}", "SUCCEEDED" if len(seen) == 5 else "RUNNING"
                await store.append("run", version=1 + len(seen), epoch=None, rows=rows(name), head=head(phase))
        whole = [b"a:", b"b:", b"n1:", b"n2:", b"n3:", b"n4:", b"n5:"]
        same(seen, whole)
        same(await asyncio.gather(*followers), [whole, whole[1:], whole[3:]])

    @scenario
    async def test_a_follower_of_an_ended_run_ends(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head("FAILED"))
        same([body async for body in store.follow("run")], [b"a:"])
        same([body async for body in store.follow("run", 1)], [])
        same([body async for body in store.follow("run", 9)], [])

    @scenario
    async def test_a_cancelled_append_can_be_repeated_with_the_same_ids(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        for version in range(1, 30):
            batch = rows(f"n{version}")
            task = self.clock.spawn(
                store.append("run", version=version, epoch=None, rows=batch, head=head()), name="append"
            )
            for _ in range(version % 5):
                await self.clock.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            same((await store.append("run", version=version, epoch=None, rows=batch, head=head())).version, version + 1)
        same(len(await store.read("run")), 30)
