"""How a run stands, said to a person: the end line, why it is not a success, and the exact commands that go on from here."""

import math
from collections.abc import Iterator

import msgspec

from checkrein.cli.exits import Exit, exit_of
from checkrein.cli.figures import checks_of, effects_in_words, run_folder, spent
from checkrein.cli.progress import print_check
from checkrein.cli.screen import Screen, shown
from checkrein.cli.shapes import end_record
from checkrein.kernel.budget import Limit
from checkrein.kernel.events import Cause
from checkrein.kernel.state import Phase, RunState

__all__ = ["commands_for", "end_line", "more_of", "print_causes", "print_end"]

_STYLES = {Phase.SUCCEEDED: "bold green", Phase.FAILED: "bold red", Phase.BLOCKED: "bold yellow"}


def end_line(state: RunState) -> str:
    """Return `SUCCEEDED · 7/7 checks · 7 of 12 tool calls · run 3f2a…` without its first word."""
    checks = checks_of(state)
    passed = sum(1 for check in checks if check.passed)
    code = f" ({state.outcome.code})" if state.outcome is not None and state.phase is Phase.FAILED else ""
    return f"{code} · {passed}/{len(checks)} checks · {spent(state)} · run {state.run_id}"


def print_end(screen: Screen, state: RunState, *, with_findings: bool = True, with_next: bool = True) -> Exit:
    """Say how the run stands, and return the exit code for it.

    Args:
        screen: where to.
        state: the run.
        with_findings: say which checks failed and why; not when that was just said.
        with_next: say which command comes next.
    """
    screen.record(end_record(state))
    if state.phase is Phase.FAILED:
        _print_failure(screen, state, with_findings=with_findings)
    elif state.phase is Phase.BLOCKED:
        print_causes(screen, state)
    elif state.cancel is not None:
        _print_awaited(screen, state)
    screen.line((str(state.phase), _STYLES.get(state.phase, "bold")), end_line(state))
    if with_next:
        _print_next(screen, state)
    return exit_of(state)


def _print_failure(screen: Screen, state: RunState, *, with_findings: bool) -> None:
    if state.outcome is None:
        return
    findings = [check for check in checks_of(state) if check.passed is False]
    if state.outcome.code == "check_failed" and findings:
        for check in findings if with_findings else ():
            print_check(screen, check)
    else:
        screen.line((f"{state.outcome.code}: ", "red"), shown(state.outcome.message))
    happened = effects_in_words(state)
    if happened:
        screen.line("what did happen: ", shown(happened))


def _print_awaited(screen: Screen, state: RunState) -> None:
    calls = ", ".join(f"{call.call_id} of {call.tool.name}" for call in state.open_calls)
    screen.line("cancel requested, outcome awaiting reconciliation: ", shown(calls))


def print_causes(screen: Screen, state: RunState) -> None:
    """Say what the run waits for, and how each cause is answered."""
    if state.cancel is not None:
        _print_awaited(screen, state)
    screen.line("it waits for:")
    for cause in state.causes:
        message = screen.with_commands(cause.message, state.run_id)
        # Nobody can permit what they were not shown to its end.
        text = shown(message, limit=len(message)) if cause.call_id else shown(message)
        screen.line((f"{shown(cause.id)}: ", "yellow"), text, indent=2)
        call = state.open_call(cause.call_id)
        if call is not None and call.is_pull:
            arguments = call.arguments.encoded.decode()
            screen.line(("arguments: ", "dim"), shown(arguments, limit=len(arguments)), indent=6)
        is_alone = len(state.causes) == 1
        for command in commands_for(screen, state, cause) if is_alone else _answering(screen, state, cause):
            screen.copyable(shown(command), indent=6)
    # One of several questions is enough to end the run, so that is said once.
    ending = _closing(screen, state, state.causes[0]) if len(state.causes) > 1 else ""
    if ending:
        screen.line("or it is ended without success:")
        screen.copyable(shown(ending), indent=6)


def commands_for(screen: Screen, state: RunState, cause: Cause) -> Iterator[str]:
    """Yield the commands that answer a cause; each names what it answers, so that it cannot be taken for what is asked later."""
    yield from _answering(screen, state, cause)
    ending = _closing(screen, state, cause)
    if ending:
        yield ending


def _answering(screen: Screen, state: RunState, cause: Cause) -> Iterator[str]:
    for words in _answers(state, cause):
        yield screen.command(words[0], state.run_id, *words[1:])


def _closing(screen: Screen, state: RunState, cause: Cause) -> str:
    """Return the command that ends a run; `""` while a call is open whose outcome nobody brings by a command."""
    is_possible = all(call.is_pull for call in state.open_calls)
    return screen.command("unblock", state.run_id, cause.id, "--close", "TEXT") if is_possible else ""


def _answers(state: RunState, cause: Cause) -> Iterator[tuple[str, ...]]:
    """Yield command and words after the run's id."""
    kind, _, subject = cause.id.partition(":")
    match cause.kind:
        case "budget":
            yield "extend", f"--{cause.detail.replace('_', '-')}", str(more_of(state, cause.detail))
        case "permission":
            yield "approve", cause.call_id
            yield "deny", cause.call_id
        case "reconcile":
            for outcome in ("done", "failed", "unknown"):
                yield "unblock", cause.id, "--outcome", outcome
        case "code_changed":
            yield "resume", "--trust"
        case "answer" if kind == "review":
            yield "approve", cause.call_id or subject
            yield "deny", cause.call_id or subject
        case "answer" if kind == "answer" and cause.call_id:
            yield "answer", cause.call_id, "JSON"
        case "answer" if kind == "planner":
            yield "approve", cause.id
        case "answer" | "verifier":
            yield "unblock", cause.id


def more_of(state: RunState, name: str) -> int:
    """Return how much more of a limit lets the run go on: as much again, and more where it was overdrawn by more."""
    limit = msgspec.convert(name, Limit)
    allowed, used = state.budget.limits.limit(limit) or 0, state.budget.taken(limit)
    return max(1, math.ceil(allowed), math.floor(used - allowed) + 1)


def _print_next(screen: Screen, state: RunState) -> None:
    folder = run_folder(state)
    if state.phase is Phase.SUCCEEDED and folder is not None and state.artifacts:
        screen.copyable(("results: ", "dim"), shown(folder))
    if state.phase.is_terminal:
        screen.next_command("show", state.run_id)
    elif state.phase is not Phase.BLOCKED:
        screen.next_command("resume", state.run_id)
