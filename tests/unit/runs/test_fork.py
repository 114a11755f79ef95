"""Forks: the history of a run under another id, none of its calls made again, and its own way from there on."""

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkrein.codec.wire import encode_event
from checkrein.errors import RunNotFound, StoreError
from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import Artifact, CodeAccepted, Event, Received, SteerQueued, ToolGranted
from checkrein.kernel.state import Phase
from checkrein.runs.cuts import legal_cuts, objection_to
from checkrein.runs.fork import ForkRefused
from checkrein.runs.worker import Worker
from checkrein.runs.workspace import seed_folder
from checkrein.store import SqliteStore
from checkrein.testing import CrashPoint
from checkrein.values import JsonData
from tests.unit.runs.fork_scene import Story
from tests.unit.runs.scene import Exists, Scene, Script, gate, step, write


@pytest.fixture(params=["memory", "sqlite"])
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    scene = Scene(tmp_path)
    if request.param == "sqlite":
        scene.store = SqliteStore(tmp_path / "runs.db", clock=scene.clock)
    return Story(scene)


def offset_of(log: list[Event], kind: str, nth: int = 0) -> int:
    """Return the offset after the n-th event of a type."""
    return [event.offset + 1 for event in log if event.type == kind][nth]


async def test_every_offset_is_a_legal_cut_or_is_refused_with_its_neighbours(story: Story) -> None:
    run_id = await story.run()
    log = await story.scene.log(run_id)
    legal = [cut.at for cut in legal_cuts(log)]
    assert legal[0] == 2
    assert legal[-1] == len(log) - 2
    for at in (*range(-1, len(log) - 1), len(log) + 1):
        if at in legal:
            assert not objection_to(log, at)
            continue
        with pytest.raises(ForkRefused) as refusal:
            await story.forks().fork(run_id, story.task, at=at)
        before = max((offset for offset in legal if offset < at), default=None)
        after = min((offset for offset in legal if offset > at), default=None)
        assert (refusal.value.run_id, refusal.value.before, refusal.value.after) == (run_id, before, after)
        assert all(str(offset) in str(refusal.value) for offset in (before, after) if offset is not None)
    await story.scene.store.aclose()


async def test_a_fork_of_every_legal_cut_keeps_the_history_and_makes_none_of_its_calls_again(story: Story) -> None:
    run_id = await story.run()
    log, row = await story.scene.log(run_id), await story.scene.store.get(run_id)
    ran = list(story.ran)
    for cut in await story.forks().cuts(run_id):
        made = await story.forks().fork(run_id, story.task, at=cut.at)
        assert (made.fork_of, made.fork_at, made.state.phase) == (run_id, cut.at, cut.state.phase)
        await story.check_copy(made, log)
        state = await story.finish(made.run_id, story.task)
        assert state.phase is Phase.SUCCEEDED
        await story.check_copy(made, log)
        kept = {event.data.call_id for event in log[: cut.at] if isinstance(event.data, ToolGranted)}
        again = {effect.call_id for effect in made.made_after}
        assert made.calls_kept == len(kept)
        assert kept.isdisjoint(again)
        assert {key for key in story.ran if key.startswith(made.run_id)} == {
            key.replace(run_id, made.run_id) for key in ran if key.partition("/")[2] not in kept
        }
        assert state.budget.used.tool_calls == 6
    assert await story.scene.log(run_id) == log
    assert await story.scene.store.get(run_id) == row
    assert [key for key in story.ran if key.startswith(run_id)] == ran
    await story.scene.store.aclose()


async def test_the_offset_at_and_inside_the_end_means_all_that_came_before_the_end(story: Story) -> None:
    run_id = await story.run()
    log = await story.scene.log(run_id)
    for at in (len(log) - 1, len(log)):
        made = await story.forks().fork(run_id, story.task, at=at)
        assert (made.fork_at, made.state.phase) == (len(log) - 2, Phase.VERIFYING)
    await story.scene.store.aclose()


async def test_what_is_told_with_a_fork_is_read_by_its_next_planning(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()
    log = await scene.log(run_id)
    at = offset_of(log, "step.end", 2)
    made = await story.forks().fork(run_id, story.task, at=at, message="pay\x1b[0m less")
    added = (await scene.log(made.run_id))[-1]
    assert isinstance(added.data, SteerQueued)
    assert (added.offset, added.actor, added.epoch) == (at, "user:ann", None)
    await story.finish(made.run_id, story.task)
    assert story.told == ["be kind", added.data.text]
    assert "pay" in added.data.text
    assert "less" in added.data.text


async def test_the_fork_is_received_anew_and_owes_nothing_to_request_or_parent(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()
    await scene.clock.advance(60)
    made = await story.forks().fork(run_id, story.task, at=4)
    old, new = (await scene.log(run_id))[0], (await scene.log(made.run_id))[0]
    assert isinstance(old.data, Received)
    assert isinstance(new.data, Received)
    assert new.data == replace(old.data, request_id="", fork_of=run_id, fork_at=4)
    assert (new.actor, new.at - old.at) == ("user:ann", 60)
    second = await story.forks().fork(made.run_id, story.task, at=2)
    again = (await scene.log(second.run_id))[0].data
    assert isinstance(again, Received)
    assert (again.fork_of, again.fork_at) == (made.run_id, 2)


def test_a_run_that_is_no_fork_has_the_bytes_it_always_had() -> None:
    task = Story(Scene(Path("out"))).task
    first = Event("run", "e", 0, 0.0, "user:ann", Received(task=task.record(), budget=task.budget))
    assert b"fork" not in encode_event(first)


async def test_another_plan_goes_on_from_the_cut_and_its_code_is_accepted_in_the_log(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()
    at = offset_of(await scene.log(run_id), "check_failed")
    changed = story.make(code_hash="c" * 64, version=2, text="all is changed")
    made = await story.forks().fork(run_id, changed, at=at)
    log = await scene.log(made.run_id)
    assert [event.data for event in log[at:]] == [CodeAccepted(code_hash="c" * 64, version=2)]
    assert isinstance(log[0].data, Received)
    assert (log[0].data.task.code_hash, log[0].data.task.version) == ("", 1)
    assert (made.state.code_hash, made.state.task.version) == ("c" * 64, 2)
    state = await story.finish(made.run_id, changed)
    assert state.phase is Phase.SUCCEEDED
    assert (scene.folder / made.run_id / "report.txt").read_text() == "all is changed"
    assert (scene.folder / run_id / "report.txt").read_text() == "all well"


async def test_a_fork_must_prove_what_its_own_task_demands(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()
    at = offset_of(await scene.log(run_id), "check_failed")
    other = replace(story.make(code_hash="d" * 64), checks=(Exists(), Exists("second.txt")))
    made = await story.forks().fork(run_id, other, at=at)
    assert [check.subject for check in made.state.task.checks] == ["report.txt", "second.txt"]
    state = await story.finish(made.run_id, other)
    assert state.phase is Phase.FAILED
    assert [finding.subject for finding in state.findings] == ["second.txt"]


async def test_a_run_that_waited_for_its_code_to_be_accepted_goes_on_in_its_fork(scene: Scene) -> None:
    story = Story(scene)
    worker = scene.worker(story.task)
    run_id = await worker.submit(story.task)
    changed = story.make(code_hash="c" * 64)
    assert [cause.id for cause in (await scene.worker(changed).advance(run_id)).causes] == ["code_changed"]
    at = len(await scene.log(run_id))
    for task in (story.task, changed):
        made = await story.forks().fork(run_id, task, at=at)
        assert (made.state.phase, made.state.causes) == (Phase.RECEIVED, ())
        assert (await story.finish(made.run_id, task)).phase is Phase.SUCCEEDED


async def test_a_task_of_another_name_is_refused(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()
    with pytest.raises(ForkRefused, match="it is of task 'scene', and task is task 'other'") as refusal:
        await story.forks().fork(run_id, replace(story.task, name="other"), at=2)
    assert (refusal.value.before, refusal.value.after) == (None, None)


async def test_a_question_that_was_open_at_the_cut_is_open_in_the_fork_and_answered_there_alone(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()
    at = offset_of(await scene.log(run_id), "blocked")
    made = await story.forks().fork(run_id, story.task, at=at)
    assert [cause.id for cause in made.state.causes] == ["permission:1.1"]
    worker = scene.worker(story.task)
    assert (await worker.advance(made.run_id)).version == at
    await worker.unblock(made.run_id, "permission:1.1", answer=JsonData({"deny": "too dear"}))
    await story.finish(made.run_id, story.task)
    assert f"{made.run_id}/1.1" not in story.ran
    await scene.check_log(made.run_id)


async def test_what_was_used_at_the_cut_is_used_in_the_fork(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()
    log = await scene.log(run_id)
    at = offset_of(log, "tool_failed") + 1
    made = await story.forks().fork(run_id, story.task, at=at)
    assert made.state.budget.used == used_by(log[:at])
    assert (made.state.budget.used.tool_calls, made.state.budget.limits.tool_calls) == (3, 3)
    state = await scene.worker(story.task).advance(made.run_id)
    assert [cause.id for cause in state.causes] == ["budget:tool_calls"]


def used_by(events: list[Event]) -> Amounts:
    """Return what a log says was used, counted by hand."""
    types = [event.type for event in events]
    return Amounts(
        turns=types.count("turn_granted"),
        tool_calls=types.count("tool_granted"),
        steps=types.count("step.start"),
        replans=sum(event.type == "plan_accepted" for event in events) - 1,
        wall_seconds=max(event.elapsed for event in events),
    )


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_call_that_is_open_belongs_to_its_run_until_it_has_an_outcome(
    scene: Scene, *, idempotent: bool
) -> None:
    held, handle = gate(idempotent=idempotent)
    task = scene.task(Script([step("held"), write()], [write()]), held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    working = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    story = Story(scene)
    log = await scene.log(run_id)
    with pytest.raises(ForkRefused, match=r"call 1\.0 of held has no outcome there") as refusal:
        await story.forks().fork(run_id, task, at=len(log))
    assert (refusal.value.before, refusal.value.after) == (offset_of(log, "work_started"), None)
    early = await story.forks().fork(run_id, task, at=2)
    assert [(effect.call_id, effect.status) for effect in early.made_after] == [("1.0", "granted")]
    handle.release.set()
    assert (await working).phase is Phase.SUCCEEDED


async def test_what_only_a_caller_brings_is_not_awaited_twice(scene: Scene) -> None:
    story = Story(scene)
    task = scene.task([step("bring"), write()])
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert [cause.id for cause in state.causes] == ["answer:1.0"]
    with pytest.raises(ForkRefused, match=r"call 1\.0 of bring"):
        await story.forks().fork(run_id, task, at=state.version)
    await worker.respond(run_id, {"result": 7})
    for at in (state.version + 1, state.version + 2):
        with pytest.raises(ForkRefused):
            await story.forks().fork(run_id, task, at=at)
    made = await story.forks().fork(run_id, task, at=state.version + 3)
    assert (await story.finish(made.run_id, task)).phase is Phase.SUCCEEDED
    assert made.calls_kept == 1


async def test_artifacts_are_copied_when_they_still_are_what_was_recorded(scene: Scene) -> None:
    story = Story(scene)
    plan = [write("a", "a.txt", "one"), write("b", "b.txt", "two"), write("c", "c.txt", "three"), write()]
    task = scene.task(Script(plan))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    await worker.advance(run_id)
    old = scene.folder / run_id
    (old / "a.txt").chmod(0o640)
    (old / "b.txt").write_text("other")
    (old / "c.txt").rename(old / "away.txt")
    (old / "c.txt").symlink_to("away.txt")
    (old / "beside.txt").write_text("no artifact")
    at = offset_of(await scene.log(run_id), "step.end", 2)
    made = await story.forks().fork(run_id, task, at=at)
    new = scene.folder / made.run_id
    assert [item.path for item in made.copied] == ["a.txt"]
    assert [item.path for item in made.missing] == ["b.txt", "c.txt"]
    assert [path.name for path in new.iterdir()] == ["a.txt"]
    assert ((new / "a.txt").read_text(), (new / "a.txt").stat().st_mode & 0o777) == ("one", 0o640)
    assert made.state.folder == made.run_id
    assert [path.name for path in scene.folder.iterdir() if path.name.startswith(".")] == []
    state = await story.finish(made.run_id, task)
    assert state.phase is Phase.SUCCEEDED
    assert (scene.folder / "latest").readlink() == Path(made.run_id)


async def test_what_the_last_owner_changed_is_taken_from_the_folder_of_the_one_before(scene: Scene) -> None:
    story = Story(scene)
    held, handle = gate()
    handle.release.set()
    plan = [write(text="first"), step("held"), write("rewrite", text="second")]
    task = scene.task(Script(plan), held)
    run_id = await scene.worker(task).submit(task)
    await scene.crash(task, run_id, "before append step.start", at=3)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert (scene.folder / f"{run_id}.2" / "report.txt").read_text() == "second"
    at = offset_of(await scene.log(run_id), "step.end")
    made = await story.forks().fork(run_id, task, at=at)
    assert made.missing == ()
    assert (scene.folder / made.run_id / "report.txt").read_text() == "first"
    for cut in await story.forks().cuts(run_id):
        assert (await story.forks().fork(run_id, task, at=cut.at)).missing == ()


def test_an_artifact_that_a_log_names_outside_of_the_folder_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    outside = Artifact("../secret.txt", hashlib.sha256(b"secret").hexdigest())
    assert seed_folder(tmp_path, "new", [outside], [tmp_path / "old"]) == ()
    assert list((tmp_path / "new").iterdir()) == []


def test_artifacts_of_different_times_whose_paths_exclude_each_other_are_copied_as_far_as_they_can(
    tmp_path: Path,
) -> None:
    for place in ("new", "old/part"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "new" / "part").write_text("file")
    (tmp_path / "old" / "part" / "inner").write_text("inner")
    artifacts = [
        Artifact(path, hashlib.sha256(text).hexdigest()) for path, text in (("part", b"file"), ("part/inner", b"inner"))
    ]
    sources = [tmp_path / "new", tmp_path / "old"]
    assert seed_folder(tmp_path, "one", artifacts, sources) == tuple(artifacts[:1])
    assert seed_folder(tmp_path, "two", artifacts[::-1], sources) == tuple(artifacts[1:])


def test_the_folder_of_a_fork_in_a_new_workspace_is_its_owners_alone(tmp_path: Path) -> None:
    workspace = tmp_path / "new" / "out"
    assert seed_folder(workspace, "run", [], []) == ()
    assert [path.stat().st_mode & 0o777 for path in (workspace, workspace / "run")] == [0o700, 0o700]


async def test_the_same_request_id_gives_the_same_fork(story: Story) -> None:
    run_id = await story.run()
    forks = story.forks()
    first = await forks.fork(run_id, story.task, at=17, request_id="again")
    again = await forks.fork(run_id, story.task, at=17, request_id="again")
    assert (again.run_id, again.is_known, first.is_known) == (first.run_id, True, False)
    assert again.made_after == first.made_after
    for at, request_id in ((11, "again"), (17, "order")):
        with pytest.raises(ForkRefused, match="is no such fork"):
            await forks.fork(run_id, story.task, at=at, request_id=request_id)
    folders = {path.name for path in story.scene.folder.iterdir()} - {"latest"}
    assert folders == {run_id, first.run_id}
    await story.scene.store.aclose()


async def test_a_store_that_fails_leaves_no_folder_behind(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()

    async def fail(_name: str) -> None:
        msg = "the disk is full"
        raise StoreError(msg)

    whole = scene.store
    scene.store = CrashPoint(at=1, among=("before create",), deed=fail).store(whole)
    with pytest.raises(StoreError, match="the disk is full"):
        await story.forks().fork(run_id, story.task, at=17)
    scene.store = whole
    assert {path.name for path in scene.folder.iterdir()} - {"latest"} == {run_id}


async def test_a_run_that_is_not_there_is_not_forked(scene: Scene) -> None:
    story = Story(scene)
    with pytest.raises(RunNotFound):
        await story.forks().fork("none", story.task, at=2)


async def test_a_fork_that_is_left_by_its_worker_is_taken_over_like_any_other_run(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()
    at = offset_of(await scene.log(run_id), "check_failed")
    made = await story.forks().fork(run_id, story.task, at=at)
    await scene.crash(story.task, made.run_id, "before append turn.start")
    state = await story.finish(made.run_id, story.task)
    assert state.phase is Phase.SUCCEEDED
    assert state.folders == (made.run_id, f"{made.run_id}.{state.epoch}")
    await scene.check_log(made.run_id)


async def test_a_worker_goes_on_at_once_with_the_fork_that_it_was_asked_for(scene: Scene) -> None:
    story = Story(scene)
    run_id = await story.run()
    at = offset_of(await scene.log(run_id), "check_failed")
    async with Worker(store=scene.store, tasks=[story.task], clock=scene.clock) as worker:
        made = await worker.fork(run_id, story.task, at=at, message="hurry")
        assert (await worker.wait(made.run_id)).phase is Phase.SUCCEEDED
    assert (await scene.log(made.run_id))[0].actor == "user:worker"
    assert story.told[-1] == "hurry"
    assert scene.folder.stat().st_mode & 0o077 == 0
