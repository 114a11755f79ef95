"""A measurement runs beside the event loop, and whatever goes wrong in it is a finding or the verifier's failure."""

import asyncio
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from checkrein.clock import spawn
from checkrein.errors import VerifierFailed
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.verify import Check
from checkrein.verify.artifacts import Unmet
from checkrein.verify.base import off_loop
from tests.unit.verify.measuring import context


class Raising(Check, frozen=True, kw_only=True):
    """Raises what it is told."""

    name: ClassVar[str] = "raising"
    revision: ClassVar[str] = "1"
    what: str = ""

    def look(self, context: CheckContext) -> Measurement:
        if self.what == "unmet":
            raise Unmet("wrong", f"wrong in {context.folder.name}", {"figure": 5})
        if self.what == "memory":
            raise MemoryError
        raise VerifierFailed("no program")


class Silent(Check, frozen=True, kw_only=True):
    """Does not say how it measures."""

    name: ClassVar[str] = "silent"
    revision: ClassVar[str] = "1"


async def test_what_is_unmet_is_a_finding(tmp_path: Path) -> None:
    measured = await Raising(what="unmet").measure(context(tmp_path))
    assert (measured.passed, measured.code, measured.data) == (False, "wrong", {"figure": 5})


@pytest.mark.parametrize(("what", "words"), [("memory", "could not run: MemoryError"), ("other", "no program")])
async def test_what_keeps_it_from_measuring_is_the_verifiers_failure(what: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(VerifierFailed, match=words):
        await Raising(what=what).measure(context(tmp_path))


async def test_a_kind_that_does_not_measure_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(VerifierFailed, match="silent does not say how it measures"):
        await Silent().measure(context(tmp_path))


async def test_the_loop_goes_on_while_a_measurement_runs() -> None:
    release = threading.Event()
    measuring = spawn(off_loop(lambda: release.wait(30), seconds=30, name="slow"), name="measuring")
    await asyncio.to_thread(lambda: None)
    assert not measuring.done()
    release.set()
    assert await measuring is True


async def test_a_measurement_that_never_ends_is_left_and_its_late_answer_dropped() -> None:
    release, ended = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(30)
        ended.set()

    with pytest.raises(VerifierFailed, match=r"slow took longer than 0\.05 s"):
        await off_loop(hang, seconds=0.05, name="slow")
    release.set()
    assert await asyncio.to_thread(ended.wait, 30)


async def test_a_cancelled_measurement_is_cancelled_at_once() -> None:
    release = threading.Event()
    measuring = spawn(off_loop(lambda: release.wait(30), seconds=30, name="slow"), name="measuring")
    await asyncio.to_thread(lambda: None)
    measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    release.set()
