"""Any transcript that our own validator accepts, however strange: for the encoders of every wire."""

from hypothesis import strategies as st

from checkrein.messages import (
    AssistantMessage,
    ContentBlock,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    validate_transcript,
)

_TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n", "hello", "\u00e9\U0001f600", "\x00", "error: no"]), st.text(max_size=20)
)
_IDS = st.one_of(st.sampled_from(["c1", "c2", "", "a b", "x" * 100, "call_1"]), st.text(max_size=8))
_NAMES = st.one_of(st.sampled_from(["add", "find", "a.b", "\u00e9", "x" * 100]), st.text(min_size=1, max_size=8))
_IMAGES = st.sampled_from([Image.of(b"\x89PNG", "image/png"), Image.of(b"GIF8", "image/gif")])
_CONTENTS = st.one_of(_TEXTS, st.lists(st.one_of(_TEXTS.map(Text), _IMAGES), max_size=3).map(tuple))
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_TEXTS, inner, max_size=2)),
    max_leaves=4,
)
SIGNATURES = st.sampled_from(
    [
        "",
        "raw",
        "chat:reasoning_content",
        "chat:reasoning",
        'chat:reasoning_details:[{"type":"x"}]',
        "chat:reasoning_details:{",
        "chat:content",
        'chat:extra_content:{"0":{"a":1}}',
        "chat:extra_content:[]",
        "messages:abc",
        "messages:thinking:c2ln:bmVk",
        "messages:thinking:",
        "messages:redacted:RW5j",
        "responses:{}",
        "responses:{",
        'responses:{"phase": "commentary"}',
        'responses:{"type": "reasoning", "summary": [], "id": "rs_1", "encrypted_content": "AA=="}',
        'responses:{"type": "reasoning", "summary": [], "id": "rs_2", "content": [{"type": "reasoning_text", "text": "hm"}]}',
    ]
)
"""Signatures of every wire, and of none: an encoder sends back only its own."""


@st.composite
def _calls(draw: st.DrawFn) -> list[ToolCall]:
    ids = draw(st.lists(_IDS, unique=True, max_size=3))
    made: list[ToolCall] = []
    for call_id in ids:
        malformed = draw(st.sampled_from(["", "", "", '{"a":', "[1]"]))
        arguments = {} if malformed else draw(st.dictionaries(_TEXTS, _VALUES, max_size=2))
        made.append(ToolCall(call_id, draw(_NAMES), arguments, malformed))
    return made


@st.composite
def _turn(draw: st.DrawFn) -> list[Message]:
    calls = draw(_calls())
    said: list[ContentBlock] = [Text(text) for text in draw(st.lists(_TEXTS, max_size=2))]
    said += [Thinking(draw(_TEXTS), draw(SIGNATURES)) for _ in range(draw(st.integers(0, 2)))]
    content = draw(st.permutations([*said, *calls]))
    results = [
        ToolResult(f"r{index}", call.id, call.name, draw(_CONTENTS), draw(st.booleans()))
        for index, call in enumerate(calls)
    ]
    return [AssistantMessage("a", tuple(content)), *draw(st.permutations(results))]


@st.composite
def transcripts(draw: st.DrawFn) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """Return a valid transcript, and the positions at which it may end: between messages and whole turns."""
    messages: list[Message] = []
    borders: list[int] = [0]
    for is_turn in draw(st.lists(st.booleans(), max_size=6)):
        messages += draw(_turn()) if is_turn else [UserMessage("u", draw(_CONTENTS))]
        borders.append(len(messages))
    assert validate_transcript(messages) == ()
    return tuple(messages), tuple(borders)
