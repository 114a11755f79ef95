"""Verification: what is proved is proved by the artifacts as they are, and what cannot be measured proves nothing."""

import pytest
from msgspec.structs import replace

from checkrein.errors import Rejected
from checkrein.harness.planners import Plan
from checkrein.kernel.budget import Budget
from checkrein.kernel.state import Phase
from checkrein.ports.verifier import CheckContext
from tests.unit.runs.scene import Exists, Scene, Script, hang, write


async def test_a_check_fails_although_the_file_exists_and_the_planner_gets_the_findings(scene: Scene) -> None:
    script = Script([write(text="")], [write(text="better")])
    task = scene.task(script)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, state.budget.used.repairs, state.budget.used.replans) == (Phase.SUCCEEDED, 1, 0)
    error = script.asked[1][1]
    assert error is not None
    assert (error.kind, error.data) == (
        "check",
        [{"check": "exists:report.txt", "code": "empty", "message": "0 characters", "subject": "report.txt"}],
    )
    await scene.check_log(run_id)


async def test_without_a_repair_left_a_failed_check_ends_the_run(scene: Scene) -> None:
    task = scene.task(Script([write(text="")], [write(text="")]), budget=Budget(repairs=1))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.outcome is not None
    assert (state.phase, state.outcome.code) == (Phase.FAILED, "check_failed")
    assert [finding.code for finding in state.findings] == ["empty"]
    await scene.check_log(run_id)


async def test_an_empty_plan_that_answers_findings_ends_the_run_as_check_failed(scene: Scene) -> None:
    task = scene.task(Script([write(text="")], []))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.outcome is not None
    assert state.outcome.code == "check_failed"


async def test_a_file_that_no_outcome_named_does_not_count(scene: Scene) -> None:
    async def forge(context: CheckContext) -> None:
        (context.folder / "other.txt").write_text("forged", encoding="utf-8")

    task = scene.task([write()], checks=[Exists(before=forge), Exists("other.txt")], budget=Budget(repairs=0))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert [(finding.check, finding.code) for finding in state.findings] == [("exists:other.txt", "not_produced")]
    assert "although it is there" in state.findings[0].message


async def test_bytes_that_changed_after_they_were_recorded_are_not_measured(scene: Scene) -> None:
    async def change(context: CheckContext) -> None:
        (context.folder / "second.txt").write_text("changed", encoding="utf-8")

    second = Exists("second.txt")
    task = scene.task(
        [write(), write("second", "second.txt")], checks=[Exists(before=change), second], budget=Budget(repairs=0)
    )
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert [(finding.check, finding.code) for finding in state.findings] == [("exists:second.txt", "changed_since")]
    assert second.measured == 0


async def test_an_artifact_that_is_gone_is_said_to_be_gone(scene: Scene) -> None:
    async def remove(context: CheckContext) -> None:
        (context.folder / "second.txt").unlink()

    task = scene.task(
        [write(), write("second", "second.txt")],
        checks=[Exists(before=remove), Exists("second.txt")],
        budget=Budget(repairs=0),
    )
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert [(finding.code, "is gone" in finding.message) for finding in state.findings] == [("changed_since", True)]


async def test_evidence_is_stale_when_the_artifact_changed_while_it_was_verified(scene: Scene) -> None:
    async def change(context: CheckContext) -> None:
        (context.folder / "report.txt").write_text("changed after it was measured", encoding="utf-8")

    task = scene.task(
        [write(), write("second", "second.txt")],
        checks=[Exists(), Exists("second.txt", before=change)],
        budget=Budget(repairs=0),
    )
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert [(finding.check, finding.code) for finding in state.findings] == [("exists:report.txt", "changed_since")]
    assert state.phase is Phase.FAILED


async def test_a_verifier_that_cannot_run_blocks_and_is_asked_again_when_a_person_says_so(scene: Scene) -> None:
    check = Exists()
    check.broken = "the reader is not installed"
    script = Script([write()])
    task = scene.task(script, checks=[check])
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["verifier:exists:report.txt"])
    assert state.findings == ()
    check.broken = ""
    assert (await worker.unblock(run_id, state.causes[0].id)).phase is Phase.VERIFYING
    state = await worker.advance(run_id)
    assert (state.phase, check.measured, len(script.asked)) == (Phase.SUCCEEDED, 2, 1)
    await scene.check_log(run_id)


async def test_a_verifier_that_raises_anything_or_never_ends_blocks_too(scene: Scene) -> None:
    async def stumble(_context: CheckContext) -> None:
        raise ZeroDivisionError

    async def never(_context: CheckContext) -> None:
        await hang()

    checks = [Exists(before=stumble), Exists("second.txt", before=never)]
    task = replace(scene.task([write(), write("second", "second.txt")], checks=checks), verify_seconds=10.0)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await scene.until(run_id, lambda state: state.phase is Phase.VERIFYING)
    while checks[1].measured == 0:
        await scene.clock.advance(0)
    await scene.clock.advance(15.0)
    state = await advancing
    assert [cause.id for cause in state.causes] == ["verifier:exists:report.txt", "verifier:exists:second.txt"]
    assert "ZeroDivisionError" in state.causes[0].message


async def test_what_is_said_while_it_is_verified_does_not_stop_the_verification(scene: Scene) -> None:
    async def steer(_context: CheckContext) -> None:
        if check.measured == 1:
            await scene.worker().steer(run_id, "one more thing")

    check = Exists(before=steer)
    script = Script([write()])
    task = scene.task(script, checks=[check])
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, len(script.asked), check.measured) == (Phase.SUCCEEDED, 1, 2)
    (end,) = [event.data for event in await scene.log(run_id) if event.type == "session.complete"]
    (note,) = [event.data for event in await scene.log(run_id) if event.type == "steer_queued"]
    assert getattr(end, "unread", None) == (getattr(note, "note", ""),)


async def test_a_check_that_the_accepted_code_no_longer_has_blocks_instead_of_being_passed_over(scene: Scene) -> None:
    task = scene.task([write()], checks=[Exists(), Exists("second.txt")])
    other = replace(scene.task([write()], checks=[Exists()]), version=2)
    run_id = await scene.worker().submit(task)
    worker = scene.worker(other)
    assert [cause.kind for cause in (await worker.advance(run_id)).causes] == ["code_changed"]
    await scene.commands().accept_code(run_id, other)
    state = await worker.advance(run_id)
    assert [cause.id for cause in state.causes] == ["verifier:exists:second.txt"]


async def test_the_next_artifact_of_a_path_is_the_one_that_is_verified(scene: Scene) -> None:
    script = Script(Plan([write(text="")], final=False), [write("again", text="now with text")])
    task = scene.task(script, budget=Budget(repairs=0))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert [item.sha256 for item in state.evidence] == [item.sha256 for item in state.artifacts]


async def test_nothing_done_is_never_a_met_goal(scene: Scene) -> None:
    task = scene.task([])
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.outcome is not None
    assert (state.phase, state.outcome.code) == (Phase.FAILED, "no_plan")


async def test_an_unblocked_verifier_is_the_only_cause_that_is_answered(scene: Scene) -> None:
    checks = [Exists(), Exists("second.txt")]
    for check in checks:
        check.broken = "not installed"
    task = scene.task([write(), write("second", "second.txt")], checks=checks)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    first, second = (await worker.advance(run_id)).causes
    assert (await worker.unblock(run_id, first.id)).phase is Phase.BLOCKED
    with pytest.raises(Rejected):
        await worker.unblock(run_id, first.id)
    assert (await worker.unblock(run_id, second.id)).phase is Phase.VERIFYING
