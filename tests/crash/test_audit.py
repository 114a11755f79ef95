"""The audit of the crash suite objects: to a doubled body, a lost promise, a missing grant, a second end and a spent budget."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkrein.kernel.events import Blocked, Event, Received, SessionComplete, Unblocked
from checkrein.runs.worker import Worker, WorkerOptions
from checkrein.values import JsonData
from tests.crash.arena import Arena
from tests.crash.audit import Audit, audit_of, faults_of
from tests.crash.child import ACKNOWLEDGED, note

Ledger = Sequence[Mapping[str, str]]


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    made = Arena(tmp_path / "arena")
    yield made
    await made.aclose()


async def _finished(arena: Arena) -> Audit:
    run_id = await arena.submit()
    worker = Worker(store=arena.store, tasks=[arena.task], options=WorkerOptions(claims="named"))
    while not (state := await worker.advance(run_id)).phase.is_terminal:
        await arena.answer(state)
    return await audit_of(arena, run_id)


def _line(ledger: Ledger, tool: str) -> Mapping[str, str]:
    return next(line for line in ledger if line["tool"] == tool)


def _repeated(ledger: Ledger) -> Ledger:
    return [*ledger, _line(ledger, "stamp")]


def _doubled(ledger: Ledger) -> Ledger:
    return [*ledger, {**_line(ledger, "post_blind"), "call": "9.9"}]


def _allowed_twice(ledger: Ledger) -> Ledger:
    return [*ledger, {**_line(ledger, "post_blind"), "attempt": "2"}]


def _made_again(ledger: Ledger) -> Ledger:
    return [{**line, "attempt": "2"} if line["tool"] == "post_probed" else line for line in ledger]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_repeated, "ran 2 times in attempt 1"),
        (_doubled, "1 bodies ran twice"),
        (_doubled, "without a grant"),
        (_made_again, "was made again"),
        (_allowed_twice, "was allowed once and made 2 times"),
    ],
)
async def test_a_body_that_ran_too_often_is_a_fault(
    arena: Arena, change: Callable[[Ledger], Ledger], fault: str
) -> None:
    sound = await _finished(arena)
    assert await faults_of(arena, sound) == []
    changed = Audit(sound.run_id, sound.events, change(sound.ledger))
    assert any(fault in found for found in changed.faults()), list(changed.faults())


async def test_a_promise_that_the_log_does_not_hold_is_a_fault(arena: Arena) -> None:
    sound = await _finished(arena)
    note(arena.folder / ACKNOWLEDGED, {"run": sound.run_id, "version": 3, "ids": ["never stored"]})
    assert any("never stored" in fault for fault in await faults_of(arena, sound))
    assert "acknowledged event note-1 is lost" in await faults_of(arena, sound, ["note-1"])


def _unended(events: Sequence[Event]) -> Sequence[Event]:
    return events[:-1]


def _ended_twice(events: Sequence[Event]) -> Sequence[Event]:
    end = next(event for event in events if isinstance(event.data, SessionComplete))
    return [events[0], end, *events[1:]]


def _limited(events: Sequence[Event]) -> Sequence[Event]:
    received = events[0].data
    assert isinstance(received, Received)
    tight = replace(received, budget=replace(received.budget, tool_calls=2))
    return [replace(events[0], data=tight), *events[1:]]


@pytest.mark.parametrize(
    ("change", "fault"), [(_unended, "it did not end"), (_ended_twice, "2 ends"), (_limited, "of 2")]
)
async def test_a_log_that_breaks_a_promise_is_a_fault(
    arena: Arena, change: Callable[[Sequence[Event]], Sequence[Event]], fault: str
) -> None:
    sound = await _finished(arena)
    changed = Audit(sound.run_id, change(sound.events), sound.ledger)
    assert any(fault in found for found in changed.faults()), list(changed.faults())


def _asked_twice(events: Sequence[Event]) -> Sequence[Event]:
    asked = next(event for event in events if isinstance(event.data, Blocked) and event.data.cause.kind == "permission")
    at = next(index for index, event in enumerate(events) if event.data is asked.data)
    return [*events[: at + 1], replace(asked, data=asked.data), *events[at + 1 :]]


def _made_although_denied(events: Sequence[Event]) -> Sequence[Event]:
    return [
        replace(event, data=replace(event.data, answer=JsonData("deny")))
        if isinstance(event.data, Unblocked) and event.data.cause_id == "permission:1.5"
        else event
        for event in events
    ]


def _made_unasked(events: Sequence[Event]) -> Sequence[Event]:
    return [
        replace(event, data=replace(event.data, cause_id="permission:9.9"))
        if isinstance(event.data, Unblocked) and event.data.cause_id == "permission:1.5"
        else event
        for event in events
    ]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_asked_twice, "was asked 2 times"),
        (_made_although_denied, "was denied and made"),
        (_made_unasked, "before anybody decided"),
    ],
)
async def test_a_decision_that_was_not_kept_to_is_a_fault(
    arena: Arena, change: Callable[[Sequence[Event]], Sequence[Event]], fault: str
) -> None:
    sound = await _finished(arena)
    changed = Audit(sound.run_id, sound.events, sound.ledger)
    changed.events = change(sound.events)
    assert any(fault in found for found in changed.faults()), list(changed.faults())


async def test_the_faults_of_a_child_are_faults_of_the_run(arena: Arena) -> None:
    sound = await _finished(arena)
    (child,) = sound.children
    note(arena.folder / ACKNOWLEDGED, {"run": child, "version": 3, "ids": ["never stored"]})
    assert any(fault.startswith(f"child {child}") for fault in await faults_of(arena, sound))
