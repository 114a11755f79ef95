"""The grammar: help without the runtime, usage errors in a line, places, and what `doctor` finds."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import cast

import pytest

from checkrein.cli.exits import Usage
from checkrein.cli.main import COMMANDS, app, main
from checkrein.cli.places import default_store, state_folder, store_path, user_name
from tests.unit.cli.folders import Printed, Shell, task_folder

Checkrein = Callable[..., Printed]


def test_every_command_has_a_page_of_help_that_names_its_options(checkrein: Checkrein) -> None:
    whole = checkrein("--help")
    assert whole.code == 0
    for name in COMMANDS:
        page = checkrein(name, "--help")
        assert page.code == 0
        assert name in whole.out
        assert "--json" in page.out
        assert "Exit codes: 0 succeeded" in page.out
    assert [name for name in app if not name.startswith("-")] == list(COMMANDS)


def test_nothing_at_all_is_asked_for_help(checkrein: Checkrein) -> None:
    assert checkrein().out == checkrein("--help").out
    assert checkrein("--version").out.strip() == version("checkrein")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rum",), 'Did you mean "run"?'),
        (("run",), "PATH"),
        (("run", "a", "b"), "b"),
        (("run", "a", "--lease", "soon"), "--lease"),
        (("list", "--nonsense"), "--nonsense"),
        (("extend", "a", "--tool-calls", "many"), "--tool-calls"),
        (("worker",), "PATH"),
    ],
)
def test_usage_errors_exit_2_in_two_lines(checkrein: Checkrein, words: tuple[str, ...], said: str) -> None:
    printed = checkrein(*words)
    assert (printed.code, printed.out) == (2, "")
    assert said in printed.err
    assert "--help" in printed.err
    assert len(printed.err.splitlines()) == 2


@pytest.mark.parametrize("lease", ["0", "-1", "nan", "inf"])
def test_a_lease_that_is_no_time_is_usage(checkrein: Checkrein, tmp_path: Path, lease: str) -> None:
    printed = checkrein("run", task_folder(tmp_path / "note"), "--trust", "--lease", lease)
    assert printed.code == 2
    assert "--lease" in printed.err


def test_a_defect_exits_70_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(cast("list[str]", [3])) == 70
    err = capsys.readouterr().err
    assert "this is a defect of checkrein; CHECKREIN_DEBUG=1 shows where" in err
    assert len(err.splitlines()) == 2


def test_a_traceback_is_shown_only_when_it_is_asked_for(
    checkrein: Checkrein, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Traceback" not in checkrein("run", tmp_path).err
    monkeypatch.setenv("CHECKREIN_DEBUG", "1")
    printed = checkrein("run", tmp_path)
    assert printed.code == 2
    assert "Traceback" in printed.err


def test_the_store_is_below_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CHECKREIN_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_store() == tmp_path / "checkrein" / "runs.db"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state_folder() == tmp_path / "home" / ".local" / "state" / "checkrein"
    monkeypatch.setenv("CHECKREIN_STORE", str(tmp_path / "env.db"))
    assert store_path(None) == (tmp_path / "env.db", False)
    assert store_path(tmp_path / "env.db") == (tmp_path / "env.db", False)
    assert store_path(tmp_path / "x.db") == (tmp_path / "x.db", True)


def test_without_any_home_a_store_must_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("CHECKREIN_STORE", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(Usage, match="--store"):
        default_store()
    assert store_path(tmp_path / "x.db") == (tmp_path / "x.db", True)


def test_without_any_home_trust_lasts_as_long_as_the_command(
    checkrein: Checkrein, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def homeless() -> Path:
        raise RuntimeError

    folder = task_folder(tmp_path / "note")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    printed = checkrein("run", folder, "--trust", "--store", tmp_path / "x.db")
    assert printed.code == 0
    assert "for this command only" in printed.lines[0]
    assert checkrein("run", folder, "--store", tmp_path / "x.db").code == 3
    assert checkrein("list").code == 2


def test_a_user_whom_the_system_does_not_know_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert user_name()
    monkeypatch.setenv("LOGNAME", "alice")
    assert user_name() == "alice"


def test_doctor_is_content_with_a_sound_installation(
    checkrein: Checkrein, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = checkrein("doctor")
    assert (printed.code, printed.lines[-2:]) == (0, ["nothing is wrong", "next: checkrein run PATH"])
    records = checkrein("doctor", "--json").records
    assert {record["name"] for record in records} >= {
        "checkrein",
        "python",
        "store",
        "trust",
        "terminal",
        "workspace",
        "extra models",
    }
    assert all(record["ok"] for record in records)


def test_doctor_knows_the_store_and_the_task(checkrein: Checkrein, tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "note")
    checkrein("run", folder, "--trust")
    printed = checkrein("doctor", folder)
    assert printed.code == 0
    assert "1 run, " in printed.out
    assert f"{folder / 'out'} (can be written)" in printed.out


def test_doctor_says_what_is_wrong_and_what_mends_it(checkrein: Checkrein, shell: Shell, tmp_path: Path) -> None:
    shell.store.parent.mkdir(parents=True)
    (shell.store.parent / "trust.json").write_text("{")
    (tmp_path / "file").write_text("")
    folder = task_folder(tmp_path / "note")
    (folder / "out").write_text("in the way")
    printed = checkrein("doctor", folder)
    assert printed.code == 1
    assert "✗ trust" in printed.out
    assert "delete the file" in printed.out
    assert "✗ workspace" in printed.out
    assert printed.lines[-1] == "2 to mend"
