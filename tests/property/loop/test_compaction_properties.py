"""Whatever is in a transcript and however large the window: what is sent is valid, parts no response from its results, and is smaller or unchanged."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from hypothesis import given, settings, strategies as st

from checkrein.errors import ModelError
from checkrein.loop.compaction import (
    Compaction,
    choose_cut,
    goal_length,
    summary_message,
    summary_request,
    tokens_of,
    turn_ends,
)
from checkrein.loop.compactor import CompactingModel
from checkrein.messages import (
    AssistantMessage,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Transcript,
    UserMessage,
    validate_transcript,
)
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse
from checkrein.ports.tool import CancelSignal
from checkrein.testing.scripted import ScriptedModel, reply

SIZES = st.sampled_from((0, 1, 30, 300, 3_000))
ENDS = ("good", "good", "long", "cut", "empty", "overflow")


@st.composite
def turns(draw: st.DrawFn, number: int) -> tuple[Message, ...]:
    """Return messages of people, and perhaps a response with the results of its calls."""
    notes = tuple(UserMessage(f"u{number}.{at}", "n" * draw(SIZES)) for at in range(draw(st.integers(0, 2))))
    if not draw(st.integers(0, 4)):
        return notes
    calls = tuple(
        ToolCall("c0", "look", {}) if draw(st.booleans()) else ToolCall.parsed(f"c{at + 1}", "see", "[1")
        for at in range(draw(st.integers(0, 3)))
    )
    calls = tuple({call.id: call for call in calls}.values())
    said = AssistantMessage(f"a{number}", (Thinking("t"), Text("x" * draw(SIZES)), *calls))
    results = (
        ToolResult(f"r{number}.{call.id}", call.id, call.name, "漢" * draw(SIZES), draw(st.booleans()))
        for call in calls
    )
    return (*notes, said, *results)


@st.composite
def transcripts(draw: st.DrawFn) -> tuple[Message, ...]:
    parts = [draw(turns(number)) for number in range(draw(st.integers(0, 9)))]
    goal = (UserMessage("goal", "g" * draw(SIZES)),) if draw(st.booleans()) else ()
    return (*goal, *(message for part in parts for message in part))


COMPACTIONS = st.builds(
    Compaction,
    window=st.sampled_from((60, 600, 3_000, 20_000)),
    threshold=st.sampled_from((0.5, 0.8)),
    keep_turns=st.integers(1, 4),
    margin=st.sampled_from((0.05, 0.3)),
    tries=st.integers(1, 3),
    summary_tokens=st.sampled_from((10, 200)),
)


def size(messages: Sequence[Message], compaction: Compaction) -> int:
    return sum(tokens_of(message, compaction.count) for message in messages)


@given(messages=transcripts(), compaction=COMPACTIONS, is_forced=st.booleans(), length=SIZES)
def test_a_cut_keeps_the_goal_and_whole_turns_and_a_summary_of_use_makes_all_smaller(
    *, messages: tuple[Message, ...], compaction: Compaction, is_forced: bool, length: int
) -> None:
    assert validate_transcript(messages) == ()
    first = goal_length(messages)
    cut = choose_cut(messages, turn_ends(messages), compaction, first=first, is_forced=is_forced)
    if cut is None:
        return
    summary = summary_message("summary", "s" * length)
    sent = (*cut.goal, summary, *messages[cut.at :])
    assert (*cut.goal, *cut.old, *messages[cut.at :]) == messages
    assert validate_transcript(sent) == validate_transcript(cut.old) == ()
    assert cut.goal == messages[:first]
    assert len(messages) > cut.at
    assert cut.old_tokens + cut.kept_tokens == size(messages, compaction)
    is_smaller = size(sent, compaction) <= size(messages, compaction) * (1 - compaction.margin)
    assert is_smaller is not bool(cut.objection_to(summary, compaction))
    if compaction.window >= 3_000:
        asked = summary_request(cut, compaction, tried=1)
        assert tokens_of(asked, compaction.count) <= compaction.window


def answering(ends: list[str], *, summary: int) -> ScriptedModel:
    """Return a model that answers every request, and with a summary of some kind where it is asked for one."""

    async def answer(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        if "-summary-" not in request.id:
            yield reply("done")
            return
        end = ends.pop(0) if ends else "good"
        if end == "overflow":
            raise ModelError("prompt is too long", code="MODEL_CONTEXT")
        text = {"empty": " ", "long": "s" * 90_000}.get(end, "s" * (summary + 1))
        yield reply(text, stop_reason="length" if end == "cut" else "stop")

    return ScriptedModel([answer] * 60)


async def asked_of(compacting: CompactingModel, messages: Sequence[Message], number: int) -> str:
    """Send a transcript, and return `done` or the code of the failure."""
    try:
        async for _ in compacting.stream(ModelRequest(f"request-{number:03}", messages), CancelSignal()):
            pass
    except ModelError as error:
        return error.code
    return "done"


@settings(deadline=None)
@given(transcripts(), COMPACTIONS, st.lists(st.sampled_from(ENDS), max_size=12), SIZES)
def test_each_request_of_a_growing_conversation_is_valid_and_the_whole_or_its_end_with_a_summary(
    messages: tuple[Message, ...], compaction: Compaction, ends: list[str], summary: int
) -> None:
    model = answering(ends, summary=summary)
    compacting = CompactingModel(model, compaction)
    lengths = [at for at in range(1, len(messages) + 1) if not _is_open(messages, at)]

    async def grow() -> None:
        transcript, before = Transcript(), 0
        for number, length in enumerate(lengths, 1):
            transcript, before = transcript.extended(messages[before:length]), length
            begin = model.call_count
            end = await asked_of(compacting, transcript, number)
            asked = model.requests[begin:]
            assert sum("-summary-" in request.id for request in asked) <= compaction.tries
            if end != "done":
                assert (end, all("-summary-" in request.id for request in asked)) == ("MODEL_CONTEXT", True)
                continue
            _check_sent(tuple(asked[-1].messages), messages[:length], compaction)

    asyncio.run(grow())


def _is_open(messages: tuple[Message, ...], at: int) -> bool:
    """Tell whether results follow after so many messages."""
    return at < len(messages) and isinstance(messages[at], ToolResult)


def _check_sent(sent: tuple[Message, ...], whole: tuple[Message, ...], compaction: Compaction) -> None:
    assert validate_transcript(sent) == ()
    if sent == whole:
        return
    first = goal_length(whole)
    assert sent[:first] == whole[:first]
    assert str(sent[first].id).startswith("summary-")
    tail = sent[first + 1 :]
    assert tail == whole[len(whole) - len(tail) :]
    assert size(sent, compaction) < size(whole, compaction)
