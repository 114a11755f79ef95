"""Models on the command line: which can be named, what is set for them, what is stored of them, and that a key is nowhere."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_models import NOTE, fake_model
from tests.unit.cli.folders import Printed, Shell, task_folder
from tests.unit.cli.models import install_models

Checkrein = Callable[..., Printed]
KEY = "sk-test-4f9d1c7b2e8a"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    script = tmp_path / "note.toml"
    script.write_text(NOTE, encoding="utf-8")
    with fake_model(script) as address:
        yield address


def at(url: str) -> tuple[str, ...]:
    return ("--model", "compatible/fake", "-c", f"base_url={url}")


def stored_model(checkrein: Checkrein, run_id: str) -> object:
    received = checkrein("events", run_id, "--json").records[0]
    data = received["data"]
    assert isinstance(data, dict)
    return data["task"]["data"].get("model")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def run_id_of(printed: Printed) -> str:
    return str(printed.records[-1]["run_id"])


def test_models_says_who_there_is_and_what_each_needs_never_what_a_key_is(
    checkrein: Checkrein, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    printed = checkrein("models")
    assert printed.code == 0
    assert "OPENAI_API_KEY: set (needed)" in printed.out
    assert "ANTHROPIC_API_KEY: not set (needed)" in printed.out
    assert "COMPATIBLE_BASE_URL: not set" in printed.out
    records = checkrein("models", "--json").records
    assert [record["provider"] for record in records] == ["openai", "anthropic", "compatible", "replay"]
    assert (records[0]["key_is_set"], records[1]["key_is_set"]) == (True, False)
    assert KEY not in printed.out + printed.err + json.dumps(records)


def test_models_lists_prices_where_they_are_known(checkrein: Checkrein) -> None:
    records = checkrein("models", "anthropic", "--json").records
    assert records
    assert all(str(record["model"]).startswith("anthropic/") for record in records)
    assert all(isinstance(record["input_usd_per_million"], float) for record in records)
    assert "no prices are known for compatible" in checkrein("models", "compatible").out
    refused = checkrein("models", "nobody")
    assert (refused.code, refused.out) == (2, "")


def test_a_model_takes_the_place_of_the_planner_and_is_stored_with_the_run(
    checkrein: Checkrein, tmp_path: Path, url: str
) -> None:
    folder = task_folder(tmp_path / "note")
    printed = checkrein("run", folder, "--trust", "--json", *at(url), "-c", "temperature=0")
    assert printed.code == 0
    run_id = run_id_of(printed)
    assert stored_model(checkrein, run_id) == {
        "name": "compatible/fake",
        "settings": {"base_url": url, "temperature": "0"},
    }
    assert (folder / "out" / run_id / "note.txt").read_text() == "x"
    assert stored_model(checkrein, run_id_of(checkrein("run", folder, "--json"))) is None


def test_a_fork_may_be_planned_by_a_model(checkrein: Checkrein, tmp_path: Path, url: str) -> None:
    folder = task_folder(tmp_path / "note")
    run_id = run_id_of(checkrein("run", folder, "--trust", "--json"))
    first = checkrein("fork", run_id, "--json").records[0]["at"]
    printed = checkrein("fork", run_id, "--at", str(first), "--json", *at(url))
    assert printed.code == 0
    fork = run_id_of(printed)
    assert stored_model(checkrein, fork) == {"name": "compatible/fake", "settings": {"base_url": url}}
    assert "planned by compatible/fake" in checkrein("events", fork).out


def test_a_task_file_names_its_model_and_needs_trust_for_it(checkrein: Checkrein, tmp_path: Path, url: str) -> None:
    folder = task_folder(tmp_path / "note")
    (folder / "plan.py").unlink()
    text = (folder / "task.toml").read_text(encoding="utf-8")
    text = text.replace('planner = "plan.py:plan"', 'model = "compatible/fake"')
    (folder / "task.toml").write_text(f'{text}[model]\nbase_url = "{url}"\n', encoding="utf-8")
    refused = checkrein("run", folder, "-c", "seed=3")
    assert (refused.code, refused.out) == (3, "")
    assert f"run {folder} -c seed=3 --trust" in refused.err, "what is to be typed says the same"
    printed = checkrein("run", folder, "--trust", "--json")
    assert printed.code == 0
    assert stored_model(checkrein, run_id_of(printed)) == {"name": "compatible/fake", "settings": {"base_url": url}}


def test_a_task_file_may_want_plans_of_several_steps(checkrein: Checkrein, tmp_path: Path) -> None:
    arguments = json.dumps({"path": "note.txt", "content": "x"})
    steps = [{"id": name, "description": "Write", "tool": "write_file", "arguments": arguments} for name in "ab"]
    script = tmp_path / "plan.toml"
    script.write_text(f'[[reply]]\ntext = """{_escaped({"steps": steps, "final": True})}"""\n', encoding="utf-8")
    folder = task_folder(tmp_path / "note", extra='planning = "steps"')
    with fake_model(script) as url:
        printed = checkrein("run", folder, "--trust", *at(url))
    assert printed.code == 0
    assert "plan of 2 steps" in printed.out


def _escaped(value: object) -> str:
    return json.dumps(value).replace("\\", "\\\\")


@pytest.mark.parametrize("command", ["resume", "worker"])
def test_who_goes_on_with_a_run_asks_its_model_without_being_told(
    checkrein: Checkrein, tmp_path: Path, url: str, command: str
) -> None:
    folder = task_folder(tmp_path / "note", tool_calls=0)
    begun = checkrein("run", folder, "--trust", "--json", *at(url))
    assert begun.code == 5
    run_id = run_id_of(begun)
    checkrein("extend", run_id, "--tool-calls", "5")
    assert checkrein(*(("resume", run_id) if command == "resume" else ("worker", folder, "--once"))).code == 0
    assert "The note is in note.txt." in checkrein("events", run_id, "--json").out
    assert "SUCCEEDED" in checkrein("show", run_id).out


def test_an_installed_model_of_another_package_plans_too(shell: Shell, tmp_path: Path) -> None:
    install_models(shell)
    folder = task_folder(tmp_path / "note")
    printed = shell.spawn("run", folder, "--trust", "--model", "echo/loud", "--json")
    assert printed.code == 1, "it says what it was told, and writes no note"
    assert any("loud: Write a note" in line for line in printed.lines)
    refused = shell.spawn("run", folder, "--model", "echo/loud", "-c", "temperature=0")
    assert refused.code == 2
    assert "it takes no settings, and temperature is set" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "openai/some"), "OPENAI_API_KEY: the key is missing"),
        (("--model", "anthropic/some"), "ANTHROPIC_API_KEY: the key is missing"),
        (("--model", "compatible/some"), "say -c base_url=http://…, or set COMPATIBLE_BASE_URL"),
        (("--model", "nobody/some"), "no model 'nobody' is installed"),
        (("--model", "replay/nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
        (("--model", "compatible/some", "-c", "base_url"), "-c base_url: write it as key=value"),
        (("--model", "compatible/some", "-c", "tempo=1"), "tempo: is no setting of a model; the settings are base_url"),
        (("--model", "compatible/some", "-c", "temperature=hot"), "temperature"),
        (("--model", "compatible/some", "-c", "base_url=http://me:word@x/v1"), "base_url holds a key or password"),
        (("-c", "temperature=0"), "planned without one; name one with --model"),
        (("--record", "record.jsonl"), "planned without one; name one with --model"),
    ],
)
def test_a_model_that_cannot_be_asked_is_said_before_anything_is_stored(
    checkrein: Checkrein, shell: Shell, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    printed = checkrein("run", task_folder(tmp_path / "note"), "--trust", *words)
    assert printed.code == 2
    assert said in printed.err
    assert not shell.store.exists()


def test_a_key_among_the_settings_is_refused_and_not_shown(
    checkrein: Checkrein, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPATIBLE_API_KEY", KEY)
    extra = f'extra={{"headers": "{KEY}"}}'
    folder = task_folder(tmp_path / "note")
    printed = checkrein("run", folder, "--trust", "--model", "compatible/x", "-c", extra)
    assert printed.code == 2
    assert "extra holds a key or password" in printed.err
    assert KEY not in printed.out + printed.err
    assert not shell.store.exists()


def test_a_record_is_not_written_over(checkrein: Checkrein, tmp_path: Path, url: str) -> None:
    record = tmp_path / "record.jsonl"
    record.write_text("mine", encoding="utf-8")
    printed = checkrein("run", task_folder(tmp_path / "note"), "--trust", *at(url), "--record", record)
    assert printed.code == 2
    assert "is there already; name a new file" in printed.err
    assert record.read_text(encoding="utf-8") == "mine"
    refused = checkrein("worker", task_folder(tmp_path / "note"), *at(url), "--record", tmp_path / "other.jsonl")
    assert refused.code == 2


def test_doctor_asks_the_address_that_was_set_and_says_who_cannot_be_reached(
    checkrein: Checkrein, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPATIBLE_BASE_URL", url)
    monkeypatch.setenv("COMPATIBLE_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    there = checkrein("doctor")
    assert there.code == 0
    assert f"{url} answers, and lists 1 model; COMPATIBLE_API_KEY is set" in there.out
    assert "OPENAI_API_KEY is set; not asked: --online asks" in there.out
    assert KEY not in there.out + there.err
    monkeypatch.setenv("COMPATIBLE_BASE_URL", "http://127.0.0.1:1/v1")
    away = checkrein("doctor")
    assert away.code == 1
    assert "cannot be reached" in away.out


def test_a_conversation_is_held_recorded_and_played_back(shell: Shell, tmp_path: Path, url: str) -> None:
    record = tmp_path / "record.jsonl"
    first = talk(shell, *at(url), "--record", record)
    assert first == talk(shell, "--model", f"replay/{record}")
    assert "I write the note." in first
    refused = shell.spawn("chat", "--script", tmp_path / "note.toml", "-c", "temperature=0")
    assert refused.code == 2


def talk(shell: Shell, *words: str | Path) -> str:
    """Return what is said to one prompt."""
    done = subprocess.run(
        [sys.executable, "-m", "checkrein", "chat", *map(str, words)],
        input="Write a note.\n",
        cwd=shell.home,
        env=shell.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
