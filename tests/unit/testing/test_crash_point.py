"""A crash point changes nothing but what it is told to, and dies where it is told to."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from checkrein.errors import StoreError
from checkrein.harness.planners import Step
from checkrein.kernel.state import Phase
from checkrein.testing import CrashPoint
from checkrein.testing.crash import EFFECTS, EXIT_CODE
from tests.unit.runs.scene import Scene, Script, write

PROGRAM = """
import asyncio
from checkrein.testing import CrashPoint

async def main():
    point = CrashPoint(2, among=("before body",), deed={deed!r})
    for name in ("before body one", "after body one", "before append", "before body two", "before body three"):
        print(name, flush=True)
        await point.reach(name)

asyncio.run(main())
"""


async def test_a_point_that_is_never_reached_changes_nothing_and_names_every_point(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    plain, wrapped = scene.task([write()]), scene.task([write()])
    first = await scene.worker(plain).submit(plain)
    await scene.worker(plain).advance(first)
    point = CrashPoint()
    second = await scene.worker(wrapped).submit(wrapped)
    state = await scene.worker(point.task(wrapped), store=point.store(scene.store)).advance(second)
    assert state.phase is Phase.SUCCEEDED
    assert await scene.types(first) == await scene.types(second)
    assert point.passed[:2] == ["before claim lease_taken", "after claim lease_taken"]
    assert point.passed[-2:] == ["before release", "after release"]
    assert point.passed.index("before body put") + 1 == point.passed.index("after body put")
    assert all(name.startswith(EFFECTS) for name in point.passed)
    names = {name.replace("before", "after") for name in point.passed if name.startswith("before")}
    assert names == {name for name in point.passed if name.startswith("after")}


async def test_a_deed_may_raise_before_or_after_the_effect(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def fail(name: str) -> None:
        raise StoreError(name)

    for when, stored in (("before", 0), ("after", 1)):
        point = CrashPoint(1, among=(f"{when} create",), deed=fail)
        task = scene.task([write()])
        with pytest.raises(StoreError, match=f"{when} create received"):
            await scene.worker(task, store=point.store(scene.store)).submit(task, request_id=when)
        assert (await scene.store.find_request(when) is not None) == bool(stored)


async def test_a_planner_passes_points_and_is_told_the_same(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    script = Script([Step(id="a", description="mark"), write()])
    task = scene.task(script)
    point = CrashPoint(among=("",))
    worker = scene.worker(point.task(task))
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert point.passed == ["before plan", "after plan", "before body put", "after body put"]
    assert script.asked == [((), None)]


@pytest.mark.parametrize(("deed", "code"), [("kill", -signal.SIGKILL), ("exit", EXIT_CODE)])
def test_a_process_dies_at_the_nth_fitting_point(deed: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(deed=deed)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert done.stdout.splitlines()[-1] == "before body two"


def test_a_process_stops_at_the_nth_fitting_point_and_goes_on_when_it_is_told_to() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(deed="stop")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while "before body two" not in process.stdout.readline():
            pass
        while Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "T":
            pass
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read().splitlines() == ["before body three"]
    assert process.returncode == 0
