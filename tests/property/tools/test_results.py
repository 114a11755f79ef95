"""Whatever a body returns, what is recorded is canonical JSON within the limit."""

import re

from hypothesis import given, settings, strategies as st

from checkrein.messages import Text
from checkrein.ports.tool import ToolOutput
from checkrein.tools.outcomes import Done, FailedCall
from checkrein.tools.results import finalise
from checkrein.values import InvalidJson, canonical_json, parse_json

TEXTS = st.text(st.characters(codec=None), max_size=400) | st.text('\0\n"é', min_size=100, max_size=400)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS | st.integers(), inner, max_size=5),
    max_leaves=30,
)
LIMITS = st.integers(200, 600)


@settings(max_examples=600)
@given(value=VALUES, limit=LIMITS)
def test_a_result_is_canonical_and_within_the_limit_or_refused_for_a_rule_of_json(value: object, limit: int) -> None:
    outcome = finalise(ToolOutput(value), attempt=1, max_bytes=limit)
    try:
        whole = canonical_json(value)
    except InvalidJson:
        assert isinstance(outcome, FailedCall)
        return
    assert isinstance(outcome, Done)
    assert len(outcome.result.encoded) <= limit
    assert canonical_json(parse_json(outcome.result.encoded)) == outcome.result.encoded
    assert outcome.truncated == (len(whole) > limit)
    if not outcome.truncated:
        assert outcome.result.encoded == whole


@settings(max_examples=300)
@given(texts=st.lists(TEXTS, max_size=5), limit=LIMITS)
def test_content_is_clean_and_within_the_limit_but_for_one_marker(texts: list[str], limit: int) -> None:
    outcome = finalise(ToolOutput(1, content=tuple(map(Text, texts))), attempt=1, max_bytes=limit)
    assert isinstance(outcome, Done)
    marker = re.compile(r"… \(cut: [\d,]+ of [\d,]+ characters are shown\)$")
    shown = [
        marker.sub("", block.text) if outcome.truncated else block.text
        for block in outcome.content
        if isinstance(block, Text)
    ]
    assert sum(len(text.encode()) for text in shown) <= limit
    assert outcome.truncated or len(shown) == len(texts)


@settings(max_examples=400)
@given(paths=st.lists(TEXTS | st.sampled_from(["a", "../a", "a/..", "/a", "a//b", "./a"]), max_size=4))
def test_artifacts_are_normal_relative_paths_or_the_call_has_failed(paths: list[str]) -> None:
    outcome = finalise(ToolOutput(1, tuple(paths)), attempt=1, max_bytes=1_000)
    if isinstance(outcome, Done):
        for path in outcome.artifacts:
            assert not path.startswith("/")
            assert not {"", ".", ".."} & set(path.split("/"))
        assert len(set(outcome.artifacts)) == len(outcome.artifacts)
