"""`list`, `show`, `events`, `replay`, `verify`: what is shown is what is stored, and damage is said in one line."""

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from checkrein.store import SqliteStore
from checkrein.store.sqlite_file import SqliteOptions, open_store
from tests.unit.cli.folders import Printed, Shell, keys, task_folder

Checkrein = Callable[..., Printed]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return task_folder(tmp_path / "note")


@pytest.fixture
def run(checkrein: Checkrein, folder: Path) -> str:
    return str(checkrein("run", folder, "--trust", "--json").records[-1]["run_id"])


def test_a_list_is_newest_first_and_its_json_has_five_keys(checkrein: Checkrein, run: str, folder: Path) -> None:
    newer = checkrein("run", folder, "--json").records[-1]["run_id"]
    records = checkrein("list", "--json").records
    assert [record["run_id"] for record in records] == [newer, run]
    assert all(keys(record) == {"run_id", "phase", "goal", "version", "updated_at"} for record in records)
    assert [line.split()[:2] for line in checkrein("list").lines[:2]] == [[newer, "SUCCEEDED"], [run, "SUCCEEDED"]]


def test_a_list_is_filtered_by_phase_task_and_number(checkrein: Checkrein, run: str, tmp_path: Path) -> None:
    poor = checkrein("run", task_folder(tmp_path / "poor", tool_calls=0), "--trust", "--json").records[-1]["run_id"]

    def listed(*words: str) -> list[object]:
        return [record["run_id"] for record in checkrein("list", "--json", *words).records]

    assert listed("--phase", "blocked") == [poor]
    assert listed("--phase", "SUCCEEDED") == [run]
    assert listed("--phase", "blocked", "--phase", "succeeded") == [poor, run]
    assert listed("--task", "note") == [run]
    assert listed("--limit", "1") == [poor]
    assert checkrein("list", "--phase", "thinking").code == 2
    assert checkrein("list", "--limit", "0").code == 2


def test_a_list_of_nothing_says_how_to_begin_and_makes_no_store(checkrein: Checkrein, shell: Shell) -> None:
    printed = checkrein("list")
    assert (printed.code, printed.lines[-1]) == (0, "next: checkrein run PATH")
    assert not shell.store.exists()


def test_show_explains_what_happened_what_proves_it_and_what_it_cost(checkrein: Checkrein, run: str) -> None:
    printed = checkrein("show", run)
    assert printed.code == 0
    for section in (
        "what happened",
        "steps",
        "what proves it",
        "what it cost of its budget",
        "artifacts",
        "how it stands",
    ):
        assert section in printed.lines
    assert any("Write 1: done, wrote note.txt" in line for line in printed.lines)
    assert "  tool calls    2 of 10" in printed.lines
    assert any("measured by file 1 on note.txt" in line for line in printed.lines)
    assert f"/out/{run}/note.txt" in printed.out
    assert printed.lines[-2:] == [
        f"SUCCEEDED · 1/1 checks · 2 of 10 tool calls · run {run}",
        f"next: checkrein verify {run}",
    ]


def test_show_exits_by_how_the_run_stands_and_lists_refusals(checkrein: Checkrein, tmp_path: Path) -> None:
    run = str(checkrein("run", task_folder(tmp_path / "poor", tool_calls=1), "--trust", "--json").records[-1]["run_id"])
    assert checkrein("show", run).code == 5
    checkrein("unblock", run, "nonsense")
    printed = checkrein("show", run)
    assert "what was refused" in printed.lines
    assert "illegal_in_phase: no open cause 'nonsense'" in printed.out


def test_events_have_the_documented_keys_and_lifecycle_events_a_phase(checkrein: Checkrein, run: str) -> None:
    records = checkrein("events", run, "--json").records
    assert [record["offset"] for record in records] == list(range(len(records)))
    for record in records:
        lifecycle = "." not in str(record["type"])
        assert keys(record) == {"offset", "type", "at", "run_id", "epoch", "data"} | ({"phase"} if lifecycle else set())
        assert isinstance(record["data"], dict)
        assert "type" not in record["data"]


def test_events_from_an_offset_know_the_phase(checkrein: Checkrein, run: str) -> None:
    whole = checkrein("events", run, "--json").records
    assert checkrein("events", run, "--json", "--from", "5").records == whole[5:]
    assert checkrein("events", run, "--from", str(len(whole))).out == ""
    assert checkrein("events", run, "--from", "-1").code == 2


def test_following_an_ended_run_ends(checkrein: Checkrein, run: str) -> None:
    assert checkrein("events", run, "--follow", "--json").records == checkrein("events", run, "--json").records


def test_replay_makes_no_call_and_ends_with_an_equal_state(checkrein: Checkrein, run: str) -> None:
    count = len(checkrein("events", run, "--json").records)
    printed = checkrein("replay", run)
    assert (printed.code, printed.lines[-1]) == (
        0,
        f"replayed {count} events: 0 model calls, 0 tool calls, state equal",
    )
    assert checkrein("replay", run, "--json").records == [
        {"run_id": run, "events": count, "model_calls": 0, "tool_calls": 0, "equal": True, "divergence": None}
    ]


def _rewrite(store: Path, run: str, offset: int, old: bytes, new: bytes) -> None:
    """Change the bytes of a stored event behind the store's back, with a valid page checksum."""
    where = "WHERE run = (SELECT key FROM runs WHERE run_id = :run) AND position = :offset"
    place = {"run": run, "offset": offset}
    with closing(open_store(store, SqliteOptions(), is_writer=True)) as connection:
        ((body,),) = connection.rows(f"SELECT body FROM events {where}", place)  # noqa: S608
        assert isinstance(body, bytes)
        assert old in body
        connection.run(f"UPDATE events SET body = :body {where}", {**place, "body": body.replace(old, new)})  # noqa: S608


def test_replay_says_where_a_changed_log_diverges(checkrein: Checkrein, run: str, shell: Shell) -> None:
    _rewrite(shell.store, run, 2, b'"lease":1', b'"lease":7')
    printed = checkrein("replay", run)
    assert printed.code == 1
    assert "0 tool calls, diverges at offset 2" in printed.out
    record = checkrein("replay", run, "--json").records[0]
    assert (record["equal"], record["events"]) == (False, 2)


def test_verify_passes_what_is_as_it_was_recorded(checkrein: Checkrein, run: str) -> None:
    printed = checkrein("verify")
    assert (printed.code, printed.lines[-2]) == (0, "1 of 1 runs are as they were recorded")
    assert checkrein("verify", run[:6], "--json").records == [{"run_id": run, "equal": True, "problems": []}]


def test_verify_sees_a_changed_log(checkrein: Checkrein, run: str, shell: Shell) -> None:
    _rewrite(shell.store, run, 2, b'"lease":1', b'"lease":7')
    printed = checkrein("verify")
    assert printed.code == 1
    assert "the log diverges at offset 2" in printed.out


@pytest.mark.parametrize("change", ["changed", "removed", "folder"])
def test_verify_sees_changed_artifacts(checkrein: Checkrein, run: str, folder: Path, change: str) -> None:
    note = folder / "out" / run / "note.txt"
    if change == "changed":
        note.write_text("xy")
    elif change == "removed":
        note.unlink()
    else:
        note.parent.rename(folder / "moved")
    printed = checkrein("verify", run)
    said = {"changed": "note.txt has other bytes", "removed": "note.txt is gone", "folder": "is gone"}[change]
    assert printed.code == 1
    assert said in printed.out


@pytest.mark.parametrize("command", ["show", "events", "replay", "verify", "resume", "cancel"])
def test_a_run_is_found_by_the_beginning_of_its_id(checkrein: Checkrein, run: str, command: str) -> None:
    assert checkrein(command, run[:8]).code == (3 if command == "cancel" else 0)


@pytest.mark.parametrize("prefix", ["zzz", "", "a/b", "%", "x" * 300, "\u202e"])
def test_an_unknown_beginning_exits_2_in_one_line(checkrein: Checkrein, run: str, prefix: str) -> None:
    assert run
    printed = checkrein("show", "--", prefix)
    assert (printed.code, printed.out) == (2, "")
    assert len(printed.err.splitlines()) == 1
    assert "\u202e" not in printed.err


def test_an_ambiguous_beginning_exits_2_and_lists_the_candidates(checkrein: Checkrein, folder: Path) -> None:
    checkrein("trust", folder)
    runs = [str(checkrein("run", folder, "--json").records[-1]["run_id"]) for _ in range(17)]
    first = next(run[0] for run in runs if sum(other[0] == run[0] for other in runs) > 1)
    printed = checkrein("show", first)
    assert printed.code == 2
    assert sum(run in printed.err for run in runs) > 1


def test_a_missing_store_exits_2_and_is_not_made(checkrein: Checkrein, tmp_path: Path) -> None:
    printed = checkrein("show", "abc", "--store", tmp_path / "typo.db")
    assert printed.code == 2
    assert "there is no store at" in printed.err
    assert not (tmp_path / "typo.db").exists()
    assert checkrein("show", "abc", "--store", tmp_path).code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("list",), ("show", "a"), ("events", "a"), ("replay", "a"), ("resume", "a"), ("steer", "a", "text"), ("cancel", "a"),
        ("unblock", "a", "b"), ("extend", "a", "--steps", "1"), ("run", "note", "--trust"), ("worker", "note", "--once"),
    ],
)  # fmt: skip
def test_a_store_that_is_none_exits_3_without_a_traceback(
    checkrein: Checkrein, folder: Path, shell: Shell, words: tuple[str, ...]
) -> None:
    checkrein("trust", folder)
    shell.store.write_bytes(b"this is no database" * 100)
    printed = checkrein(*(str(folder) if word == "note" else word for word in words))
    assert printed.code == 3
    assert "keep the file" in printed.err
    assert "Traceback" not in printed.err


def test_verify_and_doctor_say_that_a_store_is_damaged(checkrein: Checkrein, shell: Shell) -> None:
    shell.store.parent.mkdir(parents=True)
    shell.store.write_bytes(b"this is no database" * 100)
    assert checkrein("verify").code == 1
    doctor = checkrein("doctor")
    assert doctor.code == 1
    assert "✗ store" in doctor.out


def test_a_log_that_cannot_be_read_exits_3_in_one_line(checkrein: Checkrein, run: str, shell: Shell) -> None:
    _rewrite(shell.store, run, 1, b'"goal"', b'"gaol"')
    for command in ("show", "events", "resume"):
        printed = checkrein(command, run)
        assert printed.code == 3
        assert "is damaged at offset 1" in printed.err
        assert len(printed.err.splitlines()) == 1
    assert checkrein("verify", run).code == 1
    assert checkrein("replay", run).code == 1


def test_the_store_holds_what_is_shown(checkrein: Checkrein, run: str, shell: Shell) -> None:
    async def bodies() -> list[dict[str, object]]:
        store = SqliteStore(shell.store)
        try:
            return [json.loads(body) for body in await store.read(run)]
        finally:
            await store.aclose()

    stored = asyncio.run(bodies())
    shown = checkrein("events", run, "--json").records
    assert [event["at"] for event in stored] == [record["at"] for record in shown]
