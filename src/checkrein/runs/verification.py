"""The verifying phase: every required check is measured on the artifacts as they are, by something other than what made them.

An artifact counts only as the accepted outcome of this run that named it, under the digest that was recorded then; after the last verifier ended all bytes are read
again. A verifier that cannot run blocks the run; it never counts as a failed check.
"""

import asyncio
from typing import Final

import msgspec

from checkrein.errors import VerifierFailed
from checkrein.harness.host import Announce
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    Cause,
    CheckFailed,
    CheckPassed,
    EventData,
    Evidence,
    Finding,
)
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.runs.held import HeldRun, Interrupted
from checkrein.runs.task import Check
from checkrein.runs.workspace import digest_of
from checkrein.values import clean_text

__all__ = ["verify_run"]

_HINT: Final = ", although it is there; a tool names what it wrote: return ToolOutput(value, artifacts=(path,))"


class _Measured(msgspec.Struct, frozen=True):
    check: Check
    digest: str
    measurement: Measurement
    at: float


async def verify_run(held: HeldRun, announce: Announce) -> None:
    """Measure every check and record what was found; when that ends the run, announce it first.

    Raises:
        Moved: the log moved on meanwhile; measure again.
        Interrupted: the run was cancelled meanwhile.
        LeaseLost: the lease is not ours any more.
    """
    position = held.state.version
    measured: list[_Measured] = []
    checks = held.task.required_checks()
    broken: list[EventData] = _lost_checks(held, checks)
    for check in checks:
        try:
            measured.append(await _measure(held, check))
        except VerifierFailed as error:
            broken.append(_broken(check.id, str(error)))
    if broken:
        await held.append(*broken)
        return
    subjects = sorted({item.check.verifier.subject for item in measured} - {""})
    reread = {path: await asyncio.to_thread(digest_of, held.folder, path) for path in subjects}
    findings = [finding for item in measured if (finding := _finding(held, item, reread)) is not None]
    evidence = tuple(_evidence(held, item, position) for item in measured)
    if findings:
        if held.budget().is_reached("repairs"):
            await announce("check_failed")
        await held.append(CheckFailed(findings=tuple(findings), evidence=evidence))
    else:
        await announce("goal_met")
        await held.append(
            CheckPassed(evidence=evidence, reread=tuple(Artifact(path, digest) for path, digest in reread.items()))
        )


def _lost_checks(held: HeldRun, checks: tuple[Check, ...]) -> list[EventData]:
    """Return a cause for each check that the run must pass and the task, whose code was changed meanwhile, no longer has."""
    known = {(check.id, check.verifier.subject) for check in checks}
    lost = [spec.id for spec in held.state.task.checks if (spec.id, spec.subject) not in known]
    return [_broken(check_id, "the task, as it is now, has no such check") for check_id in lost]


async def _measure(held: HeldRun, check: Check) -> _Measured:
    """Return what a check's verifier found; an artifact that was never produced or has other bytes by now is not measured.

    Raises:
        VerifierFailed: the verifier could not run.
        Interrupted: the run was cancelled meanwhile.
    """
    subject = check.verifier.subject
    digest = ""
    if subject:
        recorded = held.state.artifact(subject)
        digest = await asyncio.to_thread(digest_of, held.folder, subject)
        if recorded is None:
            hint = _HINT if digest else ""
            text = f"no finished tool call of this run named {subject} as its artifact{hint}"
            return _refused(held, check, "not_produced", text)
        if digest != recorded.sha256:
            now = (
                "has other bytes than those the tool call recorded"
                if digest
                else "is gone since the tool call recorded it"
            )
            return _refused(held, check, "changed_since", f"{subject} {now}")
    context = CheckContext(folder=held.folder, inputs=held.task.inputs, timeout_seconds=held.task.verify_seconds)
    work = held.uninterrupted(
        check.verifier.measure(context), name=f"check-{check.id}", seconds=held.task.verify_seconds * 1.5
    )
    try:
        return _Measured(check, digest, await work, held.clock.now())
    except TimeoutError as error:
        msg = f"it took longer than {held.task.verify_seconds:g} s"
        raise VerifierFailed(msg) from error
    except (VerifierFailed, Interrupted):
        raise
    except Exception as error:
        msg = clean_text(f"{type(error).__name__}: {error}")
        raise VerifierFailed(msg) from error


def _refused(held: HeldRun, check: Check, code: str, text: str) -> _Measured:
    return _Measured(check, "", Measurement(passed=False, text=text, code=code), held.clock.now())


def _finding(held: HeldRun, item: _Measured, reread: dict[str, str]) -> Finding | None:
    subject = item.check.verifier.subject
    if not item.measurement.passed:
        return Finding(
            check=item.check.id,
            subject=subject,
            code=item.measurement.code or "failed",
            message=clean_text(item.measurement.text),
        )
    recorded = held.state.artifact(subject)
    if recorded is not None and reread[subject] != recorded.sha256:
        return Finding(
            check=item.check.id,
            subject=subject,
            code="changed_since",
            message=f"{subject} changed while it was being checked",
        )
    return None


def _evidence(held: HeldRun, item: _Measured, position: int) -> Evidence:
    verifier = item.check.verifier
    return Evidence(
        check=item.check.id,
        verifier=verifier.kind,
        verifier_version=verifier.version,
        run_id=held.run_id,
        subject=verifier.subject,
        sha256=item.digest,
        measurement=clean_text(item.measurement.text),
        at=float(item.at),
        position=position,
        passed=item.measurement.passed,
    )


def _broken(check_id: str, reason: str) -> Blocked:
    cause = Cause(
        id=f"verifier:{check_id}",
        kind="verifier",
        detail=check_id,
        message=f"the check {check_id} could not be measured: {reason}; mend that, then `checkrein unblock RUN verifier:{check_id}`",
    )
    return Blocked(cause=cause)
