"""When a transcript is too long, where it may be cut, and what a summary is worth: decided without asking anybody."""

import pytest

from checkrein.loop.compaction import (
    Compaction,
    choose_cut,
    estimated_tokens,
    goal_length,
    sum_of,
    summary_message,
    summary_request,
    tokens_of,
    turn_ends,
)
from checkrein.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    validate_transcript,
)
from checkrein.ports.model import ToolSchema
from checkrein.values import JsonObject

GOAL = UserMessage("u1", "what is wanted")


def turn(number: int, *texts: str) -> tuple[Message, ...]:
    """Return a response with a call for each text, and its results."""
    calls = tuple(ToolCall(f"c{place}", "look", {"at": place}) for place, _ in enumerate(texts))
    results = (ToolResult(f"r{number}.{place}", f"c{place}", "look", text) for place, text in enumerate(texts))
    return (AssistantMessage(f"a{number}", (Text(f"turn {number}"), *calls)), *results)


def talk(*turns: tuple[Message, ...]) -> tuple[Message, ...]:
    messages = (GOAL, *(message for item in turns for message in item))
    assert validate_transcript(messages) == ()
    return messages


def test_the_estimate_is_a_third_of_the_bytes_so_that_no_script_is_underrated() -> None:
    assert [estimated_tokens(text) for text in ("", "a", "abc", "abcd", "漢字", "\ud800")] == [0, 1, 1, 2, 2, 1]


def test_all_that_a_message_holds_is_counted() -> None:
    call = AssistantMessage(
        "a", (Text("abc"), Thinking("abc"), ToolCall("c", "abc", {}), ToolCall.parsed("d", "abc", "[1]"))
    )
    assert tokens_of(call, len) == 8 + 3 + 3 + (3 + 2) + (3 + 3)
    assert tokens_of(ToolResult("r", "c", "abc", "12345"), len) == 8 + 3 + 5
    assert tokens_of(UserMessage("u", (Text("abc"), Image("image/png", "AAAA"))), len) == 8 + 3 + 1_600


def test_what_the_provider_counted_is_not_estimated_again() -> None:
    compaction = Compaction(window=100, count=len)
    schemas = (ToolSchema("look", "see", JsonObject()),)
    messages = talk(turn(1, "x" * 10))
    assert compaction.size_of(messages, schemas) == sum(tokens_of(item, len) for item in messages) + 8 + 4 + 3 + 2
    assert compaction.size_of(messages, schemas, (2, 50)) == 50 + tokens_of(messages[2], len)
    assert compaction.size_of(messages, schemas, (3, 50)) == 50


def test_a_turn_ends_after_the_last_result_of_its_calls() -> None:
    messages = (*talk(turn(1, "x", "y"), turn(2)), UserMessage("u2", "more"), *turn(3, "z"))
    assert turn_ends(messages) == (4, 5, 8)
    assert turn_ends(()) == turn_ends((GOAL,)) == ()


def test_the_newest_turns_are_kept_and_the_oldest_go() -> None:
    messages = talk(*(turn(number, "x" * 90) for number in range(1, 9)))
    cut = choose_cut(messages, turn_ends(messages), Compaction(window=10_000, keep_turns=3), first=1)
    assert cut is not None
    assert (cut.goal, cut.old, cut.at) == ((GOAL,), messages[1:11], 11)
    assert cut.old_tokens + cut.kept_tokens == sum(tokens_of(message, estimated_tokens) for message in messages)


def test_fewer_turns_are_kept_when_they_alone_take_half_of_what_a_request_may() -> None:
    messages = talk(*(turn(number, "x" * 3_000) for number in range(1, 9)))
    cut = choose_cut(messages, turn_ends(messages), Compaction(window=8_000, keep_turns=5), first=1)
    assert cut is not None
    assert cut.old[-1] == messages[cut.at - 1]
    assert (len(messages) - cut.at) // 2 == 3


def test_a_transcript_that_the_model_refused_is_cut_to_its_half_although_it_seems_to_fit() -> None:
    messages = talk(*(turn(number, "x" * 300) for number in range(1, 9)))
    compaction = Compaction(window=100_000, keep_turns=7)
    plain = choose_cut(messages, turn_ends(messages), compaction, first=1)
    forced = choose_cut(messages, turn_ends(messages), compaction, first=1, is_forced=True)
    assert plain is not None
    assert forced is not None
    assert (plain.at, forced.kept_tokens <= sum(tokens_of(item, estimated_tokens) for item in messages) // 2 + 20) == (
        3,
        True,
    )


def test_nothing_is_cut_where_nothing_is_gained() -> None:
    compaction = Compaction(window=1_000, margin=0.2)
    for messages in ((), (GOAL,), talk(turn(1, "x" * 9_000)), talk(turn(1, "x"), turn(2, "x" * 9_000))):
        assert choose_cut(messages, turn_ends(messages), compaction, first=goal_length(messages)) is None


def test_the_last_turn_goes_too_when_a_person_has_spoken_since() -> None:
    messages = (*talk(turn(1, "x" * 9_000)), UserMessage("u2", "and now?"))
    cut = choose_cut(messages, turn_ends(messages), Compaction(window=1_000), first=1)
    assert cut is not None
    assert (cut.at, messages[cut.at :]) == (3, (UserMessage("u2", "and now?"),))


def test_a_summary_is_of_use_only_if_all_becomes_smaller_by_the_margin() -> None:
    messages = (*talk(turn(1, "x" * 900)), UserMessage("u2", "and now?"))
    compaction = Compaction(window=100, margin=0.25, count=len)
    cut = choose_cut(messages, turn_ends(messages), compaction, first=1)
    assert cut is not None
    frame = tokens_of(summary_message("s", ""), len)
    room = int((cut.old_tokens + cut.kept_tokens) * 0.75) - cut.kept_tokens - frame
    assert cut.objection_to(summary_message("s", "x" * room), compaction) == ""
    assert "not smaller by 25%" in cut.objection_to(summary_message("s", "x" * (room + 1)), compaction)


def asked(messages: tuple[Message, ...], compaction: Compaction, *, tried: int = 0) -> str:
    cut = choose_cut(messages, turn_ends(messages), compaction, first=1)
    assert cut is not None
    return str(summary_request(cut, compaction, tried=tried).content)


def test_the_old_turns_are_shown_as_text_without_reasoning() -> None:
    said = AssistantMessage(
        "a1",
        (Thinking("hm"), Text("Let me look."), ToolCall("c1", "look", {"at": 1}), ToolCall.parsed("c2", "look", "[")),
    )
    results = (
        ToolResult("r1", "c1", "look", "x" * 90),
        ToolResult("r2", "c2", "look", (Image("image/png", "AAAA"),), is_error=True),
    )
    messages = (GOAL, said, *results, UserMessage("u2", "go on"))
    text = asked(messages, Compaction(window=20_000))
    assert "What was asked for at first: user: what is wanted" in text
    assert 'assistant: Let me look.\nassistant calls look with {"at":1}\nassistant calls look with [' in text
    assert f"result of look: {'x' * 90}\n\nerror of look: [picture]\n</conversation>" in text
    assert "hm" not in text.partition("<conversation>")[2]


@pytest.mark.parametrize("tried", [0, 1, 2])
def test_what_is_summarised_fits_into_the_window_and_each_try_shows_half_as_much(tried: int) -> None:
    compaction = Compaction(window=8_000, summary_tokens=500)
    messages = (*talk(*(turn(number, "漢" * 40_000, "short") for number in range(1, 6))), UserMessage("u2", "go on"))
    text = asked(messages, compaction, tried=tried)
    room = (compaction.limit - 500) >> tried
    assert room // 2 < estimated_tokens(text) <= room + 300
    # What is short is whole, and what is long says how much is missing.
    assert (text.count("result of look: short"), "more characters" in text) == (5, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window", 0),
        ("window", True),
        ("keep_turns", 0),
        ("tries", 0),
        ("threshold", 1.0),
        ("margin", 0),
        ("summary_tokens", 1.5),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(name: str, value: object) -> None:
    given = {"window": 100, name: value}
    with pytest.raises(ValueError, match=name):
        Compaction(**given)  # pyright: ignore[reportArgumentType]  a value of the wrong kind is the point


class Sighted:
    def __init__(self, context_window: object) -> None:
        self.context_window = context_window


def test_a_model_that_says_how_large_its_window_is_needs_no_settings() -> None:
    assert Compaction.of(Sighted(32_000)) == Compaction(window=32_000)
    assert [Compaction.of(item) for item in (Sighted(None), Sighted(0), Sighted("32k"), object())] == [None] * 4


def test_usage_is_added_and_an_unknown_price_stays_unknown() -> None:
    known, unknown = Usage(1, 2, 3, cost=0.5), Usage(10, 20, 30)
    assert sum_of(known, known) == Usage(2, 4, 6, cost=1.0)
    assert sum_of(known, unknown) == Usage(11, 22, 33)
    assert sum_of(Usage(), known) == sum_of(known, Usage()) == known
