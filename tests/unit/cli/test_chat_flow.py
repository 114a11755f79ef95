"""What a reader sees of a run: every end and every kind of event, and nothing that a terminal would obey."""

import io

from hypothesis import given, strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from checkrein.cli.chat_flow import Flow
from checkrein.loop.events import (
    AgentEvent,
    Cancelled,
    Completed,
    Failed,
    MaxSteps,
    MessageAccepted,
    ModelChunk,
    ModelRetried,
    RunError,
    RunFinished,
    RunResult,
    RunWarned,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    UnadoptedCall,
)
from checkrein.messages import Text as TextBlock, ToolCall, ToolResult, Usage, UserMessage
from checkrein.ports.model import TextDelta, ThinkingDelta
from checkrein.values import JsonObject
from tests.unit.cli.test_screen import ALL, FORBIDDEN

CALL = ToolCall("c1", "wait", {"seconds": 3})


def said(text: str) -> ModelChunk:
    return ModelChunk(0, "run", "request-001", TextDelta("request-001", text))


def thought(text: str) -> ModelChunk:
    return ModelChunk(0, "run", "request-001", ThinkingDelta("request-001", text))


def ended(result: RunResult) -> RunFinished:
    return RunFinished(0, "run", result)


def flow_of(*events: AgentEvent, width: int | None = None) -> tuple[Flow, list[str]]:
    """A flow and the lines that it printed."""
    lines: list[Text] = []
    terminal = None if width is None else Console(file=io.StringIO(), width=width)
    flow = Flow(lines.append, terminal=terminal)
    for event in events:
        flow.take(event)
    return flow, [line.plain for line in lines]


def test_text_is_printed_line_by_line_as_it_comes_and_the_rest_is_open() -> None:
    flow, lines = flow_of(said("Hel"), said("lo\nwor"), said("ld\n\nen"), width=80)
    assert lines == ["Hello", "world", ""]
    assert flow.open.plain == "en"
    flow.close()
    assert flow.open.plain == ""


def test_rows_that_are_full_are_let_go_at_the_words_so_that_one_row_is_open() -> None:
    flow, lines = flow_of(*(said(word) for word in ("one two ", "three ", "four five six ", "seven")), width=10)
    assert [line.rstrip() for line in lines] == ["one two", "three four", "five six"]
    assert flow.open.plain == "seven"


@given(st.lists(st.text(st.sampled_from("ab 日\t"), max_size=8), max_size=12), st.integers(4, 20))
def test_no_row_is_wider_than_the_terminal_and_no_character_is_lost(parts: list[str], width: int) -> None:
    flow, lines = flow_of(*map(said, parts), width=width)
    rows = [*lines, flow.open.plain]
    assert "".join("".join(rows).split()) == "".join("".join(parts).split())
    assert [row for row in rows if cell_len(row.rstrip()) > width] == []


@given(st.lists(st.text(st.sampled_from("ab日"), min_size=1, max_size=4), max_size=12), st.data())
def test_no_word_is_broken_wherever_its_chunks_are_cut(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    flow, lines = flow_of(*map(said, parts), width=8)
    assert " ".join([*lines, flow.open.plain]).split() == words


def test_without_a_terminal_lines_are_as_long_as_they_are_and_prompts_are_not_repeated() -> None:
    message = MessageAccepted(0, "run", UserMessage(id="u", content="Hi"))
    _, lines = flow_of(message, said("word " * 100 + "\n"))
    assert lines == ["word " * 100]


def test_what_a_person_said_stands_where_it_is_read() -> None:
    message = MessageAccepted(0, "run", UserMessage(id="u", content="one\ntwo"))
    blocks = MessageAccepted(0, "run", UserMessage(id="u", content=(TextBlock("three"),)))
    _, lines = flow_of(said("open"), message, blocks, width=80)
    assert lines == ["open", "", "› one", "  two", "", "› three"]


def test_thoughts_and_words_are_kept_apart() -> None:
    _, lines = flow_of(thought("hm"), thought("m"), said("Yes."), thought("so"), said("No.\n"), width=80)
    assert lines == ["hmm", "Yes.", "so", "No."]


def test_tools_are_shown_from_their_start_to_their_end() -> None:
    started = ToolStarted(0, "run", "c1", "wait", JsonObject({"seconds": 3}))
    flow, lines = flow_of(started, ToolProgress(0, "run", "c1", "1 of 3 s"), width=80)
    assert lines == ['▸ wait {"seconds":3}']
    assert flow.running == {"c1": "1 of 3 s"}
    flow.take(ToolFinished(0, "run", "c1", "wait", ToolResult("r", "c1", "wait", "waited")))
    assert flow.running == {}
    _, lines = flow_of(
        started,
        ToolProgress(0, "run", "c1", "1 of 3 s"),
        ToolFinished(0, "run", "c1", "wait", ToolResult("r", "c1", "wait", (TextBlock("no"),), is_error=True)),
        ToolStarted(0, "run", "c2", "clock", JsonObject()),
    )
    assert lines == ['▸ wait {"seconds":3}', "  c1: 1 of 3 s", "✗ wait: no", "▸ clock"]


def test_every_end_says_what_became_of_the_turn() -> None:
    calls = (UnadoptedCall(CALL, "outcome_unknown"), UnadoptedCall(CALL, "not_started"))
    usage = Usage()
    completed = Completed(messages=(), run_id="run", usage=usage, final_text="x")
    cancelled = Cancelled(messages=(), run_id="run", usage=usage, reason="", unadopted_calls=calls)
    failed = Failed(messages=(), run_id="run", usage=usage, error=RunError("MODEL_EMPTY", "nothing"))
    limited = MaxSteps(messages=(), run_id="run", usage=usage, max_steps=64)
    assert flow_of(said("x"), ended(completed))[1] == ["x"]
    assert flow_of(said("half"), ended(cancelled))[1] == [
        "half",
        "cancelled: what was said and done in this turn is not part of the conversation",
        "  wait: outcome unknown",
        "  wait: not started",
    ]
    assert flow_of(ended(failed))[1] == ["failed (MODEL_EMPTY): nothing"]
    assert flow_of(ended(limited))[1] == ["stopped (max_steps) after at most 64 requests; it can go on"]


def test_what_a_model_says_without_streaming_it_is_printed_once() -> None:
    end = ended(Completed(messages=(), run_id="run", usage=Usage(), final_text="whole\ntext"))
    done = ToolFinished(0, "run", "c1", "wait", ToolResult("r", "c1", "wait", "waited"))
    assert flow_of(end, said("streamed"), end)[1] == ["whole", "text", "streamed"]
    assert flow_of(said("first"), done, end)[1] == ["first", "✓ wait: waited", "whole", "text"]


def test_a_retry_says_that_what_was_said_is_void() -> None:
    _, lines = flow_of(said("half"), ModelRetried(0, "run", "request-001", 2, 1.5, "overloaded"))
    assert lines == [
        "half",
        "the model failed: overloaded; asked again in 1.5 s (attempt 2), what it said so far is void",
    ]


def test_hostile_text_of_every_event_is_made_visible() -> None:
    usage = Usage()
    hostile = ToolCall("c", ALL, {ALL: ALL})
    _, lines = flow_of(
        said(ALL + "\n"),
        thought(ALL + "\n"),
        MessageAccepted(0, "run", UserMessage(id="u", content=ALL)),
        ModelRetried(0, "run", ALL, 2, 1.5, ALL),
        ToolStarted(0, "run", ALL, ALL, JsonObject({"a": ALL})),
        ToolProgress(0, "run", ALL, ALL),
        ToolFinished(0, "run", ALL, ALL, ToolResult("r", "c", ALL, ALL)),
        RunWarned(0, "run", "repeated_call", ALL),
        ended(
            Cancelled(
                messages=(), run_id="run", usage=usage, reason=ALL, unadopted_calls=(UnadoptedCall(hostile, "failed"),)
            )
        ),
        ended(Failed(messages=(), run_id="run", usage=usage, error=RunError("MODEL_EMPTY", ALL))),
        width=200,
    )
    assert len(lines) >= 11
    assert [line for line in lines if FORBIDDEN.search(line)] == []
    assert sum("\\x1b]52" in line for line in lines) >= 5


def test_markup_of_a_model_is_text() -> None:
    assert flow_of(said("[red]x[/red]\n"))[1] == ["[red]x[/red]"]
