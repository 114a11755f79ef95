"""Tasks whose steps a model chooses, over a real socket of this machine: to the end, with a repair, after a kill, and played back from a record."""

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.acceptance.example_tasks import REPORT, copied
from tests.fake_models import NOTE, fake_model
from tests.unit.cli.folders import Printed, Shell, task_folder

KEY = "sk-test-4f9d1c7b2e8a"
ASKED = ("--model", "compatible/fake")


class Scene(Shell):
    """Commands in processes of their own, with the examples and a key."""

    @property
    def script(self) -> Path:
        """The script of the store report."""
        return self.home / "examples" / "models" / "store-report.toml"

    def ask(self, url: str) -> None:
        """Let commands know where the model is."""
        self.env |= {"COMPATIBLE_BASE_URL": url, "COMPATIBLE_API_KEY": KEY}

    def log(self, run_id: str) -> list[dict[str, object]]:
        """Return a run's events."""
        return self.spawn("events", run_id, "--json").records


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.delenv("CHECKREIN_STORE", raising=False)
    copied(tmp_path)
    return Scene(tmp_path)


def run_id_of(printed: Printed) -> str:
    return str(printed.records[-1]["run_id"])


def used(printed: Printed, limit: str) -> int:
    """Return how much of a limit a run used, by the end that a command printed."""
    budget = cast("Mapping[str, Mapping[str, int]]", printed.records[-1]["budget"])
    return budget[limit]["used"]


def of_type(log: Sequence[Mapping[str, object]], kind: str) -> list[Mapping[str, object]]:
    return [cast("Mapping[str, object]", event["data"]) for event in log if event["type"] == kind]


def told(log: Sequence[Mapping[str, object]]) -> list[object]:
    """Return what a run did, without what is its own: ids, times and places."""
    return [
        (event["type"], event["data"]) for event in log if event["type"] in {"plan.commit", "step.end", "turn.finished"}
    ]


def test_a_model_makes_the_store_report_and_its_record_makes_the_equal_run(scene: Scene) -> None:
    record, folder = scene.home / "record.jsonl", scene.home / "examples" / REPORT
    with fake_model(scene.script) as url:
        scene.ask(url)
        made = scene.spawn("run", folder, "--trust", "--json", *ASKED, "--record", record)
    assert made.code == 0
    assert made.records[-1]["phase"] == "SUCCEEDED"
    first = run_id_of(made)
    played = scene.spawn("run", folder, "--json", "--model", f"replay/{record}")
    assert played.code == 0
    second = run_id_of(played)
    assert told(scene.log(second)) == told(scene.log(first))
    assert used(played, "tokens") == used(made, "tokens") > 0
    for name in ("report.md", "summary.json"):
        results = [(folder / "out" / run_id / name).read_bytes() for run_id in (first, second)]
        assert results[0] == results[1]
    assert "0 model calls, 0 tool calls, state equal" in scene.spawn("replay", first).out


def test_findings_go_back_to_the_model_which_repairs_what_it_did(scene: Scene) -> None:
    text = scene.script.read_text(encoding="utf-8")
    assert text.count("Total sales: $2,328.60") == 1
    before, _, _ = text.rpartition("\n[[reply]]")
    report = before[before.rindex("\n[[reply]]") :]
    report = report[: report.rindex("[[reply.call]]")]
    lied = text.replace("Total sales: $2,328.60", "Total sales: $9,999.99")
    scene.script.write_text(f'{lied}{report}\n[[reply]]\ntext = "The total is right now."\n', encoding="utf-8")
    with fake_model(scene.script) as url:
        scene.ask(url)
        made = scene.spawn("run", scene.home / "examples" / REPORT, "--trust", "--json", *ASKED)
    assert made.code == 0, made.err
    log = scene.log(run_id_of(made))
    (failed,) = of_type(log, "check_failed")
    assert [item["check"] for item in cast("list[Mapping[str, str]]", failed["findings"])] == ["total"]
    assert len(of_type(log, "turn.start")) == 6
    assert made.records[-1]["phase"] == "SUCCEEDED"


def test_a_kill_in_the_middle_of_a_response_asks_for_it_once_more_and_doubles_nothing(scene: Scene) -> None:
    folder = task_folder(scene.home / "note")
    script, record = scene.home / "slow.toml", scene.home / "record.jsonl"
    script.write_text(NOTE.replace("[[reply]]", "[[reply]]\ndelay = 0.2", 1), encoding="utf-8")
    with fake_model(script) as url:
        scene.ask(url)
        killed = scene.start("run", folder, "--trust", *ASKED, "--record", record, "--lease", "0.5")
        wait_for_events(record, 3, killed)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        (row,) = scene.spawn("list", "--json").records
        run_id = str(row["run_id"])
        before = scene.log(run_id)
        assert [event["type"] for event in before[-2:]] == ["turn.start", "turn_granted"]
        gone_on = scene.spawn("resume", run_id, "--json", "--record", record)
    assert gone_on.code == 0, gone_on.err
    log = scene.log(run_id)
    starts = [(start["turn"], start.get("attempt", 1)) for start in of_type(log, "turn.start")]
    assert starts == [(1, 1), (1, 2), (2, 1)]
    assert (used(gone_on, "turns"), used(gone_on, "tool_calls")) == (3, 1)
    assert len(of_type(log, "tool_granted")) == len(of_type(log, "plan.commit")) - 1 == 1
    requests = [line["request"] for line in map(json.loads, record.read_text().splitlines()) if "request" in line]
    assert requests == ["request-001", "request-001", "request-002"]
    again = scene.spawn("run", folder, "--json", "--model", f"replay/{record}")
    assert again.code == 0, "a record that was cut off and gone on with plays, too"


def wait_for_events(record: Path, count: int, process: "subprocess.Popen[str]") -> None:
    """Return once so many events of an answer were recorded."""
    while not record.exists() or record.read_text(encoding="utf-8").count('"data"') < count:
        assert process.poll() is None, process.communicate()


def test_a_key_is_nowhere_in_what_a_run_leaves(scene: Scene) -> None:
    folder, record = task_folder(scene.home / "note"), scene.home / "record.jsonl"
    script = scene.home / "note.toml"
    script.write_text(NOTE, encoding="utf-8")
    with fake_model(script) as url:
        scene.ask(url)
        made = scene.spawn("run", folder, "--trust", *ASKED, "--record", record)
    run_id = str(scene.spawn("list", "--json").records[0]["run_id"])
    said = [scene.spawn(*words) for words in (("show", run_id), ("events", run_id, "--json"), ("models",), ("doctor",))]
    assert made.code == 0
    assert all(KEY not in printed.out + printed.err for printed in (made, *said))
    left = [path for path in scene.home.rglob("*") if path.is_file()]
    assert record in left
    assert scene.store in left
    assert [path for path in left if KEY.encode() in path.read_bytes()] == []


def test_a_resume_without_the_key_says_which_variable_is_missing(scene: Scene) -> None:
    folder = task_folder(scene.home / "note", tool_calls=0)
    scene.env |= {"OPENAI_API_KEY": KEY}
    with fake_model(scene.script) as url:
        words = ("--model", "openai/fake", "-c", f"base_url={url}", "-c", "api=chat")
        blocked = scene.spawn("run", folder, "--trust", "--json", *words)
    assert blocked.code == 5
    run_id = run_id_of(blocked)
    scene.spawn("extend", run_id, "--tool-calls", "5")
    before = scene.log(run_id)
    del scene.env["OPENAI_API_KEY"]
    refused = scene.spawn("resume", run_id)
    assert refused.code == 2
    assert "OPENAI_API_KEY: the key is missing" in refused.err
    assert scene.log(run_id) == before
