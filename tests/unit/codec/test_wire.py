"""Events as bytes: what is written, what is refused, and that yesterday's logs are read today."""

import json
import sys

import pytest
from msgspec.structs import replace

from checkrein.codec import schema
from checkrein.codec.wire import (
    decode_event,
    decode_events,
    decode_value,
    encode_event,
    encode_value,
    fingerprint,
    row_of,
    skim_events,
)
from checkrein.errors import DamagedLog, DataError, InvalidJson
from checkrein.kernel.events import RUN_EVENT_TYPES, SESSION_EVENT_TYPES, Event, SteerQueued, ToolCallGiven, ToolDone
from checkrein.kernel.run import fold_run, transition_batch
from checkrein.kernel.session import fold_session
from checkrein.kernel.state import Phase
from checkrein.values import JsonData, JsonObject, as_data
from tests.golden.scenarios import FOLDER, RUN, SCENARIOS, TASK

STEER = Event(
    run_id=RUN, event_id="e1", expected_version=4, at=1.5, actor="user:alice", data=SteerQueued(note="n", text="hi")
)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_golden_log_is_read_and_written_byte_for_byte(name: str) -> None:
    lines = (FOLDER / f"{name}.v1.jsonl").read_bytes().splitlines()
    events = decode_events(lines, run_id=RUN)
    assert tuple(events) == SCENARIOS[name]()
    assert [encode_event(event) for event in events] == lines


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_skimmed_log_folds_to_the_same_values_as_the_events_themselves(name: str) -> None:
    lines = (FOLDER / f"{name}.v1.jsonl").read_bytes().splitlines()
    for length in range(1, len(lines) + 1):
        events, skimmed = decode_events(lines[:length], run_id=RUN), list(skim_events(lines[:length], run_id=RUN))
        assert [event.type for event in skimmed] == [event.type for event in events]
        for fold in (fold_run, fold_session):
            whole = fold(events)
            assert fold(skimmed) == whole
            assert repr(fold(skimmed)) == repr(whole)
        assert encode_value(fold_run(skimmed)) == encode_value(fold_run(events))


@pytest.mark.parametrize(
    ("name", "phase"), [("repaired", Phase.SUCCEEDED), ("cancelled", Phase.FAILED), ("failed", Phase.FAILED)]
)
def test_golden_log_passes_the_guards_and_folds_to_its_end(name: str, phase: Phase) -> None:
    events = SCENARIOS[name]()
    state = transition_batch(None, events)
    assert state == fold_run(events)
    assert state.phase is phase
    assert state.version == len(events)


def test_golden_logs_hold_every_event_type() -> None:
    seen = {event.type for scenario in SCENARIOS.values() for event in scenario()}
    assert seen == {*RUN_EVENT_TYPES, *SESSION_EVENT_TYPES}


def test_every_event_type_has_a_schema_version_with_a_summary() -> None:
    assert set(schema.CURRENT) == {*RUN_EVENT_TYPES, *SESSION_EVENT_TYPES}
    assert set(schema.CURRENT.values()) <= set(schema.SUMMARIES)


def test_bytes_have_sorted_keys_and_no_space() -> None:
    body = encode_event(STEER)
    assert body == json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_fingerprint_is_of_content_and_not_of_the_envelope() -> None:
    again = Event(
        run_id=RUN, event_id="e2", expected_version=9, at=2.0, actor="user:alice", data=STEER.data, epoch=3, elapsed=1.0
    )
    assert fingerprint(again) == fingerprint(STEER)
    other_actor = Event(run_id=RUN, event_id="e1", expected_version=4, at=1.5, actor="user:bob", data=STEER.data)
    other_text = Event(
        run_id=RUN, event_id="e1", expected_version=4, at=1.5, actor="user:alice", data=SteerQueued(note="n", text="ho")
    )
    other_run = Event(run_id="f" * 16, event_id="e1", expected_version=4, at=1.5, actor="user:alice", data=STEER.data)
    assert len({fingerprint(event) for event in (STEER, other_actor, other_text, other_run)}) == 4
    assert row_of(STEER).fingerprint == fingerprint(STEER)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"surprise": 1}, "surprise"),
        ({"data": {"type": "steer_queued", "note": "n", "text": "hi", "more": 1}}, "more"),
        ({"data": {"type": "from_the_future"}}, "from_the_future"),
        ({"data": {"type": "steer_queued", "note": "n"}}, "text"),
        ({"expected_version": "4"}, "str"),
        ({"v": 99}, "schema version 99"),
        ({"v": 0}, "schema version 0"),
        ({"v": None}, "schema version"),
    ],
)
def test_what_encoding_never_makes_is_refused_with_run_and_offset(change: dict[str, object], reason: str) -> None:
    body = json.dumps({**json.loads(encode_event(STEER)), **change}).encode()
    with pytest.raises(DamagedLog) as caught:
        decode_event(body, run_id=RUN, offset=4)
    assert (caught.value.run_id, caught.value.offset) == (RUN, 4)
    assert reason in caught.value.reason


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"data":{}}'])
def test_bytes_that_are_no_event_are_a_typed_error(body: bytes) -> None:
    with pytest.raises(DamagedLog):
        decode_event(body, run_id=RUN, offset=0)
    with pytest.raises(DamagedLog):
        decode_events([body], run_id=RUN)


def test_log_with_a_gap_or_another_runs_event_names_the_offset() -> None:
    bodies = [encode_event(event) for event in SCENARIOS["cancelled"]()]
    with pytest.raises(DamagedLog) as gap:
        decode_events([bodies[0], bodies[2]], run_id=RUN)
    assert gap.value.offset == 1
    with pytest.raises(DamagedLog) as other:
        decode_events(bodies, run_id="f" * 16)
    assert other.value.offset == 0


def test_two_bodies_in_one_row_do_not_pass_as_two_events() -> None:
    bodies = [encode_event(event) for event in SCENARIOS["cancelled"]()]
    with pytest.raises(DamagedLog):
        decode_events([bodies[0] + b"," + bodies[1]], run_id=RUN)


DONE = encode_event(
    Event(
        run_id=RUN,
        event_id="e1",
        expected_version=4,
        at=1.5,
        actor="worker:w",
        data=ToolDone("1.0", JsonData({"a": "\u00fc", "b": 1})),
        epoch=1,
    )
)


def test_result_written_in_another_form_is_the_same_value_with_the_same_bytes() -> None:
    spaced = DONE.replace('{"a":"\u00fc","b":1}'.encode(), b' { "b" : 1, "a" : "\\u00fc" } ')
    assert spaced != DONE
    for event in (decode_event(spaced, run_id=RUN, offset=4), *decode_events([spaced], run_id=RUN, offset=4)):
        assert encode_event(event) == DONE
        assert (event, hash(event)) == (known := decode_event(DONE, run_id=RUN, offset=4), hash(known))


@pytest.mark.parametrize(
    "wrong", [b"[1]", b'"text"', b"1", b"null", b'{"a":\xff}', b'{"a":"\xff"}', b'{"a":1', b'{"a":01}']
)
def test_arguments_that_are_no_object_are_refused_although_nobody_looked_at_them(wrong: bytes) -> None:
    body = encode_event(replace(STEER, data=ToolCallGiven("s", "1.0", "put", JsonObject({"k": 1}))))
    damaged = body.replace(b'{"k":1}', wrong)
    assert damaged != body
    with pytest.raises(DamagedLog):
        decode_event(damaged, run_id=RUN, offset=4)
    with pytest.raises(DamagedLog):
        list(skim_events([damaged], run_id=RUN, offset=4))


def test_number_that_no_float_holds_is_refused_at_the_latest_when_it_is_looked_at() -> None:
    damaged = DONE.replace(b'"b":1', b'"b":1e999')
    with pytest.raises(DamagedLog, match="range"):
        decode_event(damaged, run_id=RUN, offset=4)
    data = decode_events([damaged], run_id=RUN, offset=4)[0].data
    assert isinstance(data, ToolDone)
    with pytest.raises(InvalidJson):
        assert as_data(data.result).value


def test_kept_result_keeps_no_more_of_the_log_than_its_own_event() -> None:
    bodies = [DONE.replace(b'"expected_version":4', b'"expected_version":%d' % offset) for offset in range(5)]
    before = [sys.getrefcount(bodies[offset]) for offset in range(5)]
    kept = [event.data for event in decode_events(bodies, run_id=RUN)][2]
    assert isinstance(kept, ToolDone)
    assert [sys.getrefcount(bodies[offset]) - before[offset] for offset in range(5)] == [0, 0, 1, 0, 0]
    assert as_data(kept.result).encoded
    assert [sys.getrefcount(bodies[offset]) - before[offset] for offset in range(5)] == [0, 0, 0, 0, 0]


def test_older_payload_is_lifted_step_by_step() -> None:
    steps: dict[tuple[str, int], schema.Upcaster] = {
        ("note", 1): lambda payload: {**payload, "text": payload["words"]},
        ("note", 2): lambda payload: {key: value for key, value in payload.items() if key != "words"},
    }
    lifted = schema.upcast({"type": "note", "words": "hi"}, 1, current={"note": 3}, upcasters=steps)
    assert lifted == {"type": "note", "text": "hi"}
    with pytest.raises(DataError, match="no way from version 1"):
        schema.upcast({"type": "note"}, 1, current={"note": 2}, upcasters={})


def test_values_other_than_events_travel_the_same_way() -> None:
    state = fold_run(SCENARIOS["repaired"]())
    assert decode_value(encode_value(state.task), type(TASK)) == state.task
    with pytest.raises(DataError):
        decode_value(b"{}", type(TASK))
