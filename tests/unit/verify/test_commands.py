"""The check `command`: no shell, little environment, a bounded output, and an end in time for the whole group."""

import asyncio
import os
import py_compile
import select
import sys
from pathlib import Path

import pytest

from checkrein.clock import spawn
from checkrein.errors import VerifierFailed
from checkrein.verify import CommandCheck, make_check
from tests.unit.verify.measuring import context, measure, refused, write

PYTHON = sys.executable


def _python(code: str) -> dict[str, object]:
    return {"argv": [PYTHON, "-S", "-E", "-c", code]}


async def test_the_expected_exit_status_passes(tmp_path: Path) -> None:
    assert (await measure("command", _python("pass"), tmp_path)).passed
    assert (await measure("command", {**_python("raise SystemExit(3)"), "exit_status": 3}, tmp_path)).passed


async def test_another_exit_status_fails_with_the_end_of_the_output(tmp_path: Path) -> None:
    code = "import sys; print('x' * 100000); sys.stdout.flush(); print('the last word', file=sys.stderr); sys.exit(1)"
    measured = await measure("command", _python(code), tmp_path)
    assert (measured.passed, measured.code) == (False, "exit_status")
    assert "ended with exit status 1, not 0" in measured.text
    assert measured.text.endswith("the last word")
    assert str(measured.data["output"]).endswith("the last word\n")
    assert len(str(measured.data["output"])) <= 4_000


async def test_a_signal_is_named(tmp_path: Path) -> None:
    measured = await measure("command", _python("import os; os.kill(os.getpid(), 11)"), tmp_path)
    assert "ended with signal SIGSEGV" in measured.text


async def test_it_runs_in_the_runs_folder_with_an_allowed_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    code = "import os, json; print(json.dumps([os.getcwd(), dict(os.environ), os.listdir(os.environ['HOME'])]))"
    measured = await measure("command", {**_python(code), "env": {"MODE": "strict"}}, tmp_path)
    output = str(measured.data["output"])
    assert str(tmp_path) in output
    assert '"MODE": "strict"' in output
    assert "hunter2" not in output
    assert os.environ["HOME"] not in output
    assert output.rstrip().endswith("[]]")


async def test_arguments_are_no_shell_words(tmp_path: Path) -> None:
    argv = [PYTHON, "-S", "-E", "-c", "import sys; print(sys.argv[1:])", "; touch x", "$(id)", "*"]
    measured = await measure("command", {"argv": argv}, tmp_path)
    assert "['; touch x', '$(id)', '*']" in str(measured.data["output"])
    assert os.listdir(tmp_path) == []  # noqa: PTH208  as quick as looking can be


async def test_inputs_and_the_tasks_folder_can_be_arguments(tmp_path: Path) -> None:
    write(tmp_path, "task/check.py", "import sys; print(open(sys.argv[1]).read())")
    write(tmp_path, "sales.csv", "figures")
    (tmp_path / "run").mkdir()
    options = {"argv": [PYTHON, "{task}/check.py", "{input:sales}"]}
    inputs = {"sales": tmp_path / "sales.csv"}
    made = make_check("command", options, source="task.toml", base=tmp_path / "task", inputs=inputs)
    measured = await made.measure(context(tmp_path / "run", inputs))
    assert measured.data["output"] == "figures\n"


async def test_compiled_code_beside_a_program_is_not_run(tmp_path: Path) -> None:
    write(tmp_path, "task/helper.py", "print('compiled')")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    assert py_compile.compile(str(tmp_path / "task" / "helper.py"), invalidation_mode=mode)
    write(tmp_path, "task/helper.py", "print('as written')")
    write(tmp_path, "task/check.py", "import helper")
    made = make_check("command", {"argv": [PYTHON, "{task}/check.py"]}, source="task.toml", base=tmp_path / "task")
    assert (await made.measure(context(tmp_path))).data["output"] == "as written\n"


async def test_a_program_that_is_not_there_is_the_verifiers_failure(tmp_path: Path) -> None:
    with pytest.raises(VerifierFailed, match="there is no program 'checkrein-no-such-program' on PATH"):
        await measure("command", {"argv": ["checkrein-no-such-program"]}, tmp_path)


async def test_a_program_of_the_runs_folder_is_never_found(tmp_path: Path) -> None:
    write(tmp_path, "check", "#!/bin/sh\nexit 0\n")
    (tmp_path / "check").chmod(0o755)
    with pytest.raises(VerifierFailed, match="no program"):
        await measure("command", {"argv": ["check"]}, tmp_path)


async def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    code = "import os, time; os.fork(); open(f'{os.getpid()}.pid', 'w').close(); time.sleep(100)"
    with pytest.raises(VerifierFailed, match="took longer than 2 s and was killed"):
        await measure("command", {**_python(code), "timeout_seconds": 2}, tmp_path)
    assert len(_pids(tmp_path)) == 2
    assert _have_ended(_pids(tmp_path))


async def test_what_a_program_leaves_behind_is_killed_and_not_waited_for(tmp_path: Path) -> None:
    code = "import os, time\nif os.fork() == 0:\n    open(f'{os.getpid()}.pid', 'w').close()\n    time.sleep(100)\n"
    code += "while not [n for n in os.listdir() if n.endswith('.pid')]: pass"
    measured = await asyncio.wait_for(measure("command", _python(code), tmp_path), 20)
    assert measured.passed
    assert _have_ended(_pids(tmp_path))


async def test_a_child_that_left_the_group_and_holds_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    code = (
        "import os, time\nif os.fork() == 0:\n    os.setsid(); open('left', 'w').close(); time.sleep(8); os._exit(0)\n"
    )
    code += "while not os.path.exists('left'): pass\nprint('done')"
    measured = await asyncio.wait_for(measure("command", _python(code), tmp_path), 6)
    assert measured.data["output"] == "done\n"


_SLEEPS = """
import os, time
open(f"{os.getpid()}.pid", "w").close()
open("started", "w").close()
time.sleep(100)
"""


async def test_a_cancelled_measurement_kills_the_program(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    check = CommandCheck(argv=(PYTHON, "-S", "-E", "-c", _SLEEPS))
    task = spawn(check.measure(context(tmp_path)), name="measuring")
    await asyncio.to_thread((tmp_path / "started").read_bytes)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert _have_ended(_pids(tmp_path))


async def test_an_endless_output_is_bounded_and_ended(tmp_path: Path) -> None:
    with pytest.raises(VerifierFailed, match="took longer"):
        await measure("command", {**_python("while True: print('x' * 10000)"), "timeout_seconds": 0.5}, tmp_path)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"argv": []}, "argv"),
        ({"argv": "true"}, "argv"),
        ({"argv": [""]}, "argv"),
        ({"argv": ["./check.sh"]}, "argv"),
        ({"argv": ["bin/check"]}, "argv"),
        ({"argv": ["true", "a\0b"]}, "argv"),
        ({"argv": ["true"], "env": {"A=B": "c"}}, "argv"),
        ({"argv": ["true"], "exit_status": 256}, "exit_status"),
        ({"argv": ["true"], "timeout_seconds": 0}, "timeout_seconds"),
        ({"argv": ["true"], "path": "../x"}, "path"),
    ],
)
def test_commands_that_cannot_be_started_are_refused(options: dict[str, object], key: str) -> None:
    assert refused("command", options).key == key


def _pids(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.pid")]


def _have_ended(pids: list[int]) -> bool:
    """Tell whether processes that were killed are gone; a kill takes a moment."""
    return all(_has_ended(pid) for pid in pids)


def _has_ended(pid: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)
