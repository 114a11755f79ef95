"""Nothing of a task folder is run before a person trusted exactly the bytes that are there."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from checkrein.cli.exits import NotCovered
from checkrein.cli.loader import attribute_of
from checkrein.cli.resolver import FolderResolver
from checkrein.cli.trust import TrustList, take_folder
from checkrein.clock import SystemClock
from checkrein.errors import TaskError
from checkrein.verify import JsonSchemaCheck
from tests.unit.cli.folders import WRITE, Printed, Shell, task_folder

Checkrein = Callable[..., Printed]

MARKING = "from pathlib import Path\n\nPath(__file__).with_name('imported').write_text('')\n" + WRITE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return task_folder(tmp_path / "note", plan=MARKING)


def _hash(folder: Path) -> str:
    return take_folder(folder / "task.toml").code_hash


def test_an_untrusted_folder_exits_3_imports_nothing_stores_nothing_and_names_the_command(
    checkrein: Checkrein, folder: Path, shell: Shell
) -> None:
    printed = checkrein("run", folder)
    assert (printed.code, printed.out) == (3, "")
    assert _hash(folder) in printed.err
    assert f"checkrein run {folder} --trust" in printed.err
    assert not (folder / "imported").exists()
    assert not shell.store.exists()


def test_trust_says_the_hash_it_trusts_and_only_that_runs(checkrein: Checkrein, folder: Path) -> None:
    wanted = _hash(folder)
    printed = checkrein("trust", folder)
    assert (printed.code, printed.lines) == (0, [f"trusted {wanted}", f"next: checkrein run {folder}"])
    assert not (folder / "imported").exists()
    assert checkrein("run", folder).code == 0


def test_one_changed_byte_asks_again(checkrein: Checkrein, folder: Path) -> None:
    (folder / "notes.txt").write_text("a")
    checkrein("trust", folder)
    (folder / "notes.txt").write_text("b")
    assert checkrein("run", folder).code == 3
    (folder / "notes.txt").write_text("a")
    (folder / "imported").unlink(missing_ok=True)
    assert checkrein("run", folder).code == 0


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "task"])
def test_every_change_of_the_folder_is_another_hash(folder: Path, change: str) -> None:
    (folder / "notes.txt").write_text("a")
    before = _hash(folder)
    if change == "added":
        (folder / "deep").mkdir()
        (folder / "deep" / "new.py").write_text("")
    elif change == "removed":
        (folder / "notes.txt").unlink()
    elif change == "renamed":
        (folder / "notes.txt").rename(folder / "other.txt")
    else:
        (folder / "task.toml").write_text((folder / "task.toml").read_text() + "\n")
    assert _hash(folder) != before


def test_results_inputs_and_bytecode_are_not_hashed(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "in.csv").write_text("1")
    task = folder / "task.toml"
    task.write_text(task.read_text() + '[inputs]\nrows = "data/in.csv"\n')
    before = _hash(folder)
    for path in ("data/in.csv", "out/x/result.txt", "__pycache__/plan.pyc", ".git/config", "lib/__pycache__/x.pyc"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("2")
    assert _hash(folder) == before


def test_a_folder_beside_an_input_of_the_same_beginning_is_hashed(folder: Path) -> None:
    before = _hash(folder)
    (folder / "out.py").write_text("")
    assert _hash(folder) != before


@pytest.mark.parametrize("target", ["plan.py", "/etc", "nowhere"])
def test_a_symbolic_link_is_refused(checkrein: Checkrein, folder: Path, target: str) -> None:
    (folder / "link.py").symlink_to(target)
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 3
    assert "link.py: is a symbolic link" in printed.err
    assert not (folder / "imported").exists()


def test_a_task_file_that_is_a_link_is_refused(checkrein: Checkrein, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "task.toml").symlink_to(folder / "task.toml")
    assert checkrein("run", tmp_path / "elsewhere", "--trust").code == 3


def test_a_fifo_is_refused_and_never_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(NotCovered, match="neither a file nor a folder"):
        take_folder(folder / "task.toml")


def test_a_name_that_is_no_utf8_is_refused(folder: Path) -> None:
    (folder / os.fsdecode(b"a\xff.py")).write_text("")
    with pytest.raises(NotCovered, match="UTF-8"):
        take_folder(folder / "task.toml")


@pytest.mark.parametrize("workspace", [".", "..", "/"])
def test_a_workspace_that_holds_the_code_is_refused(folder: Path, workspace: str) -> None:
    task = folder / "task.toml"
    task.write_text(task.read_text().replace('workspace = "out"', f'workspace = "{workspace}"'))
    with pytest.raises(TaskError, match="holds the task's own files"):
        take_folder(task)


@pytest.mark.parametrize("place", ["out/plan.py", "data/plan.py"])
def test_code_among_results_or_inputs_is_not_found(folder: Path, place: str) -> None:
    (folder / place).parent.mkdir()
    (folder / place).write_text("plan = 1")
    task = folder / "task.toml"
    task.write_text(task.read_text() + '[inputs]\nrows = "data/plan.py"\n')
    with pytest.raises(LookupError, match="no file"):
        attribute_of(take_folder(task), f"{place}:plan")


def test_what_runs_is_what_was_hashed_whatever_the_disk_says_now(folder: Path) -> None:
    taken = take_folder(folder / "task.toml")
    (folder / "plan.py").write_text("plan = 'changed after the hash'")
    assert callable(attribute_of(taken, "plan.py:plan"))


def test_files_of_a_task_import_each_other_and_leave_no_bytecode(folder: Path) -> None:
    (folder / "lib").mkdir()
    (folder / "lib" / "deep.py").write_text("from ..figures import NUMBER\nTWICE = NUMBER * 2\n")
    (folder / "figures.py").write_text("NUMBER = 21\n")
    (folder / "plan.py").write_text(
        "from .lib import deep\nfrom . import figures\nanswer = deep.TWICE, figures.NUMBER\n"
    )
    assert attribute_of(take_folder(folder / "task.toml"), "plan.py:answer") == (42, 21)
    assert list(folder.rglob("__pycache__")) == []


def test_two_folders_with_the_same_files_do_not_share_their_modules(tmp_path: Path) -> None:
    code = "from pathlib import Path\nHERE = Path(__file__).parent\n"
    folders = [task_folder(tmp_path / name / "task", plan=code) for name in ("a", "b")]
    found = [attribute_of(take_folder(folder / "task.toml"), "plan.py:HERE") for folder in folders]
    assert found == folders


@pytest.mark.parametrize(
    "reference",
    ["plan", "plan.py", "plan.py:", "../plan.py:plan", "/etc/x.py:plan", "a.b.py:plan", "plan.py:a.b", "plan.py:p\n"],
)
def test_a_reference_that_is_no_plain_file_and_name_is_refused(folder: Path, reference: str) -> None:
    with pytest.raises(LookupError):
        attribute_of(take_folder(folder / "task.toml"), reference)


def test_a_module_of_the_process_is_not_found_as_code_of_the_task(checkrein: Checkrein, folder: Path) -> None:
    task = folder / "task.toml"
    task.write_text(task.read_text().replace("plan.py:plan", "os:system"))
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 2
    assert "no reference to code" in printed.err


def test_a_folder_that_is_too_much_is_refused(folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(NotCovered, match="larger than"):
        take_folder(folder / "task.toml")
    (folder / "large").unlink()
    (folder / "many").mkdir()
    for number in range(10_000):
        (folder / "many" / str(number)).touch()
    with pytest.raises(NotCovered, match="more than 10,000 files"):
        take_folder(folder / "task.toml")


def test_modules_of_the_current_folder_are_not_imported(shell: Shell, folder: Path) -> None:
    for name in ("rich.py", "cyclopts.py", "msgspec.py", "plan.py", "getpass.py"):
        (folder / name).write_text("from pathlib import Path\n\nPath('imported').write_text('')\n")
    process = subprocess.run(
        [sys.executable, "-m", "checkrein", "run", "."],
        cwd=folder,
        env=shell.environment(),
        capture_output=True,
        check=False,
    )
    assert process.returncode == 3
    assert not (folder / "imported").exists()


def test_the_list_of_trusted_tasks_is_for_its_owner_alone(checkrein: Checkrein, folder: Path, shell: Shell) -> None:
    checkrein("trust", folder)
    path = shell.store.parent / "trust.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(json.loads(path.read_text())["trusted"]) == [_hash(folder)]
    assert [item.name for item in path.parent.iterdir() if item.name.startswith(".trust")] == []


@pytest.mark.parametrize("content", ["", "[]", '{"trusted": []}', "{"])
def test_a_damaged_list_trusts_nothing_and_says_what_to_do(
    checkrein: Checkrein, folder: Path, shell: Shell, content: str
) -> None:
    checkrein("trust", folder)
    (shell.store.parent / "trust.json").write_text(content)
    printed = checkrein("run", folder)
    assert printed.code == 2
    assert "delete the file" in printed.err
    assert not (folder / "imported").exists()


def test_trust_is_kept_for_every_hash_that_was_given_it(tmp_path: Path) -> None:
    trusted = TrustList(tmp_path / "new" / "trust.json", SystemClock())
    for code_hash in ("a", "b", "a"):
        trusted.add(code_hash, tmp_path)
    assert [trusted.holds(code_hash) for code_hash in ("a", "b", "c")] == [True, True, False]


def test_a_check_whose_options_are_a_command_needs_trust_too(checkrein: Checkrein, folder: Path) -> None:
    (folder / "plan.py").unlink()
    task = folder / "task.toml"
    text = task.read_text().replace('planner = "plan.py:plan"', 'planner = "installed"')
    task.write_text(text + '[[check]]\nkind = "command"\nargv = ["true"]\n')
    assert checkrein("run", folder).code == 3
    task.write_text(text)
    assert checkrein("run", folder).code == 2
    assert "brings no code" in checkrein("trust", folder).out


JUDGE = "import sys\nsys.exit(open(sys.argv[1]).read() != 'xx')\n"


@pytest.fixture
def judged(folder: Path) -> Path:
    """A task whose file is judged by a program of its folder."""
    (folder / "judge.py").write_text(JUDGE)
    (folder / "plan.py").write_text(WRITE)
    task = folder / "task.toml"
    argv = f"[{json.dumps(sys.executable)}, '-I', '{{task}}/judge.py', 'note.txt']"
    task.write_text(f"{task.read_text()}[[check]]\nid = 'judge'\nkind = 'command'\nargv = {argv}\n")
    return folder


def test_a_program_of_the_task_is_run_while_it_is_what_was_trusted(checkrein: Checkrein, judged: Path) -> None:
    assert checkrein("run", judged, "--trust").code == 0


@pytest.mark.parametrize("name", ["judge.py", "json.py"])
def test_a_program_whose_folder_was_changed_after_the_hash_proves_nothing(
    checkrein: Checkrein, judged: Path, name: str
) -> None:
    change = f"Path(__file__).with_name({name!r}).write_text('import sys; sys.exit(0)')\n"
    (judged / "plan.py").write_text(
        f"from pathlib import Path\n\n{WRITE.replace('    return [', f'    {change}    return [', 1)}"
    )
    printed = checkrein("run", judged, "--trust")
    assert printed.code == 4
    assert f"changed since it was trusted ({name})" in printed.out


def test_a_program_that_changes_its_own_folder_proves_nothing(checkrein: Checkrein, judged: Path) -> None:
    (judged / "judge.py").write_text(f"open(__file__, 'a').write('#')\n{JUDGE}")
    printed = checkrein("run", judged, "--trust")
    assert printed.code == 4
    assert "changed since it was trusted (judge.py)" in printed.out


def test_a_schema_is_read_from_what_was_hashed(folder: Path) -> None:
    (folder / "wanted.json").write_text('{"const": 1}')
    taken = take_folder(folder / "task.toml")
    (folder / "wanted.json").write_text("true")
    options = {"path": "a.json", "schema": "wanted.json"}
    made = FolderResolver(taken).check("json_schema", options)
    assert isinstance(made, JsonSchemaCheck)
    assert made.schema == {"const": 1}
    with pytest.raises(TaskError, match="does not exist in the task's folder"):
        FolderResolver(taken).check("json_schema", {**options, "schema": "other.json"})
    with pytest.raises(TaskError, match=r"`\.\.`"):
        FolderResolver(taken).check("json_schema", {**options, "schema": "../note/wanted.json"})


def test_a_tool_a_check_and_a_policy_of_the_task_are_found(checkrein: Checkrein, folder: Path) -> None:
    (folder / "own.py").write_text(
        "from checkrein import tool\n"
        "from checkrein.verify.functions import check\n\n\n"
        "@tool\ndef shout(text: str) -> str:\n    return text.upper()\n\n\n"
        "@check(path='note.txt', title='the note is two letters')\n"
        "def short(context):\n    return (context.folder / 'note.txt').read_text() == 'xx'\n\n\n"
        "def allow(tool, arguments):\n    return 'allow'\n"
    )
    task = folder / "task.toml"
    text = task.read_text().replace('"write_file"', '"write_file", "own.py:shout"')
    text = text.replace('workspace = "out"', 'workspace = "out"\npolicy = "own.py:allow"')
    task.write_text(text + '[[check]]\nkind = "own.py:short"\n')
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 0
    assert "✓ the note is two letters" in printed.lines
