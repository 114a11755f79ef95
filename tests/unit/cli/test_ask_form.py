"""The form of a question: only offered keys answer it, and what is typed after them is looked at before it is an answer."""

import pytest

from checkrein.cli.ask_form import AskForm, Leave, Reply
from checkrein.cli.chat_keys import Key, KeyReader, Pasted, Typed
from checkrein.cli.questions import PLANNER_FAILED, Question

CALL = Question("decision", "1.0", "permission", tool="pay")
PLANNER = Question("decision", "turn:2", PLANNER_FAILED)
RESULT = Question("result", "1.0", "tool_result", tool="look_up")
BUDGET = Question("budget", "tool_calls", "budget_exceeded:tool_calls")
COST = Question("budget", "cost", "budget_exceeded:cost")


def replies(form: AskForm, keys: str) -> list[Reply]:
    """Press keys one by one, and return the replies that came of them."""
    reader = KeyReader()
    presses = [press for key in keys for press in reader.feed(key.encode())] + reader.flush()
    return [reply for press in presses if (reply := form.press(press)) is not None]


@pytest.mark.parametrize(
    ("question", "keys", "reply"),
    [
        (CALL, "y", {"decision": "allow", "call_id": "1.0"}),
        (CALL, "Y", {"decision": "allow", "call_id": "1.0"}),
        (CALL, "n\r", {"decision": "deny", "call_id": "1.0"}),
        (CALL, "n too dear \r", {"decision": {"deny": "too dear"}, "call_id": "1.0"}),
        (PLANNER, "y", {"decision": "allow", "call_id": "turn:2"}),
        (RESULT, "r[1]\r", {"result": [1], "call_id": "1.0"}),
        (RESULT, "rnull\r", {"result": None, "call_id": "1.0"}),
        (RESULT, "fgone\r", {"error": "gone", "call_id": "1.0"}),
        (BUDGET, "e\r", {"extend": {"tool_calls": 3}}),
        (BUDGET, "e12\r", {"extend": {"tool_calls": 12}}),
        (COST, "e0.5\r", {"extend": {"cost": 0.5}}),
        (CALL, "s", Leave.SKIP),
        (RESULT, "s", Leave.SKIP),
        (BUDGET, "q", Leave.QUIT),
        (CALL, "\x04", Leave.QUIT),
        (CALL, "nbecause\x04", Leave.QUIT),
    ],
)
def test_each_key_has_its_answer(question: Question, keys: str, reply: Reply) -> None:
    assert replies(AskForm(question, more=3), keys) == [reply]


@pytest.mark.parametrize(
    ("question", "keys"),
    [(CALL, "x1 \r\x7fre"), (PLANNER, "nfr"), (RESULT, "yne"), (BUDGET, "ysnr"), (CALL, "nno"), (RESULT, "r3")],
)
def test_other_keys_answer_nothing(question: Question, keys: str) -> None:
    assert replies(AskForm(question), keys) == []


@pytest.mark.parametrize("press", [Typed("yy"), Typed("yes"), Pasted("y"), Key.ENTER, Key.ESCAPE])
def test_only_a_single_key_is_a_choice(press: Typed | Pasted | Key) -> None:
    assert AskForm(CALL).press(press) is None


@pytest.mark.parametrize(
    ("question", "keys", "notice"),
    [
        (RESULT, "r\r", "no JSON"),
        (RESULT, "r{\r", "no JSON"),
        (RESULT, "rNaN\r", "no JSON"),
        (RESULT, "f \r", "say why"),
        (BUDGET, "emany\r", "a whole number"),
        (BUDGET, "e1.5\r", "a whole number"),
        (BUDGET, "e-1\r", "more than 0"),
        (COST, "e0\r", "more than 0"),
        (COST, "einf\r", "more than 0"),
        (COST, "enan\r", "more than 0"),
        (COST, "emuch\r", "a number"),
    ],
)
def test_what_cannot_be_an_answer_is_said_and_stays_in_the_line(question: Question, keys: str, notice: str) -> None:
    form = AskForm(question)
    assert replies(form, keys) == []
    assert notice in form.notice
    assert keys[1:-1].strip() in form.line(80)[0].plain


def test_escape_forgets_what_was_typed() -> None:
    form = AskForm(CALL)
    offered = form.line(80)
    assert replies(form, "nnot this") == []
    assert form.press(Key.ESCAPE) is None
    assert form.line(80) == offered
    assert replies(form, "n\r") == [{"decision": "deny", "call_id": "1.0"}]


@pytest.mark.parametrize("keys", ["", "n", "n" + "because " * 9])
def test_the_cursor_is_in_the_row_on_every_width(keys: str) -> None:
    for width in range(1, 60):
        form = AskForm(CALL)
        replies(form, keys)
        assert 0 <= form.line(width)[1] < width
