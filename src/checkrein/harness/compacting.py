"""Making the transcript of a session shorter before it is planned, and once more when the model refuses it as too long.

A summary is asked for in attempts of the planning's own turn, each with a `turn.start` (in a run with `turn_granted(purpose=compaction)`), so the numbers of turns have no
gap, and a crash between grant and answer is what it is for a planning: one more attempt. The invariant: no request is made that was not counted before, and what useless
ones consumed stands in the fact that ends the attempts.
"""

from msgspec.structs import replace

from checkrein.harness.asking import PlannerReply
from checkrein.harness.attempts import RETRY, allows, ask_with_retries, sum_of_known
from checkrein.harness.cuts import SessionCut
from checkrein.harness.host import SessionHost
from checkrein.harness.planners import PlannerFailed
from checkrein.kernel.events import TranscriptCompacted, TurnStart
from checkrein.kernel.session_next import AskPlanner
from checkrein.loop.compaction import CONTEXT_CODE, fruitless
from checkrein.loop.summary import Summary
from checkrein.messages import Usage

__all__ = ["ask_within_window", "make_room"]


async def make_room(
    host: SessionHost, effect: AskPlanner, *, refusal: PlannerFailed | None = None
) -> tuple[AskPlanner | PlannerFailed, int]:
    """Make the transcript short enough for a planning.

    Args:
        host: the session's place.
        effect: the planning, no attempt of which is begun yet.
        refusal: the model's own word that the transcript is too long.

    Returns:
        The planning as it is to be begun now, or why it cannot be; and how many attempts were made for summaries.

    Raises:
        Exception: what the host raises to say that the log moved on, or is lost.
    """
    cut = await host.transcript.overlong(_start(effect), is_forced=refusal is not None)
    if cut is None:
        return refusal or effect, 0
    return await _summarise(host, effect, cut)


async def _summarise(host: SessionHost, effect: AskPlanner, cut: SessionCut) -> tuple[AskPlanner | PlannerFailed, int]:
    useless: list[str] = []
    wasted, made = Usage(), 0
    while True:
        start = _start(effect)
        await host.begin_turn(start, previous=effect.previous, is_held=False, purpose="compaction")
        summary = await host.transcript.summarise(cut, start, tried=len(useless))
        made, wasted = made + 1, sum_of_known(wasted, summary.usage)
        if summary.message is not None:
            text = str(summary.message.content)
            await host.transcript.compact(
                TranscriptCompacted(through_turn=cut.through_turn, summary=text, usage=wasted)
            )
            return replace(effect, attempt=effect.attempt + 1, notes=(), previous=""), made
        failed = await _after(host, summary, useless, made=made, wasted=wasted, tries=cut.compaction.tries)
        if failed.is_transient:
            effect = replace(effect, attempt=effect.attempt + 1, notes=(), previous=failed.reason)
            continue
        return failed, made


async def _after(
    host: SessionHost, summary: Summary, useless: list[str], *, made: int, wasted: Usage, tries: int
) -> PlannerFailed:
    """Wait if that may help, and return what went wrong; asking again may help when it is transient."""
    error = summary.error
    if error is None:
        useless.append(summary.useless)
        last = fruitless(useless)
        is_again = len(useless) < tries and allows(host.budget(), wasted)
        return PlannerFailed(_reason(last.code, str(last)), is_transient=is_again, usage=wasted, code=last.code)
    failures = made - len(useless)
    is_again = error.is_transient and RETRY.allows(failures, asked=error.retry_after)
    if is_again and allows(host.budget(), wasted):
        await host.sleep(RETRY.delay(failures, asked=error.retry_after))
    is_again = is_again and allows(host.budget(), wasted)
    return PlannerFailed(_reason(error.code, str(error)), is_transient=is_again, usage=wasted, code=error.code)


def _reason(code: str, text: str) -> str:
    return f"{code}: {text}"


def _start(effect: AskPlanner) -> TurnStart:
    return TurnStart(turn=effect.turn, attempt=effect.attempt, notes=effect.notes, reason=effect.reason)


async def ask_within_window(
    host: SessionHost, effect: AskPlanner, attempt: int, *, aside: int
) -> tuple[PlannerReply | PlannerFailed | None, int]:
    """Return what came of a planning whose attempt was begun, and the number of the last attempt; None when the budget ends before there is an answer.

    A transcript that the model refuses as too long is made shorter once.

    Args:
        host: the session's place.
        effect: what is asked.
        attempt: the attempt that was begun.
        aside: how many attempts of the turn were for summaries.

    Raises:
        Exception: what the host raises to say that the log moved on, or is lost.
    """
    answer, attempt = await ask_with_retries(host, effect, attempt, aside=aside)
    if not isinstance(answer, PlannerFailed) or answer.code != CONTEXT_CODE or not allows(host.budget(), answer.usage):
        return answer, attempt
    following = replace(effect, attempt=attempt + 1, notes=(), previous=answer.reason, is_held=False)
    room, made = await make_room(host, following, refusal=answer)
    attempt += made
    if isinstance(room, PlannerFailed):
        return room, attempt
    if not allows(host.budget(), Usage()):
        return None, attempt
    await host.begin_turn(_start(room), previous=room.previous, is_held=False)
    return await ask_with_retries(host, room, room.attempt, aside=aside + made)
