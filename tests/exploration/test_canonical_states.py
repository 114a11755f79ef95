"""The explored state space is a sound picture: states that count as one behave as one, whatever versions, epochs and texts their logs gave them."""

import pytest

from checkrein.errors import Rejected
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import ToolSpec
from checkrein.kernel.run import transition
from checkrein.kernel.state import RunState
from checkrein.testing.explorer_model import Act, Lifecycle, Scenario, Sender, canonical
from checkrein.testing.explorer_world import World

SCENARIOS = (
    Scenario("plain", ToolSpec("send_mail"), Budget(turns=1, tool_calls=1, repairs=1), asks=True, accepts=True),
    Scenario("probed", ToolSpec("book", has_probe=True), Budget(turns=0, tool_calls=1, repairs=1), loses_answers=True),
    Scenario(
        "again", ToolSpec("write", idempotent=True), Budget(turns=0, tool_calls=1, repairs=0), Amounts(tool_calls=1)
    ),
)
Question = tuple[Act, Sender, bool]


def answer(lifecycle: Lifecycle, state: RunState, question: Question) -> tuple[str, RunState | None]:
    act, sender, behind = question
    try:
        return "", transition(state, lifecycle.event(state, act, sender, behind=behind))
    except Rejected as refusal:
        return refusal.code, None


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_states_that_count_as_one_give_the_same_answers(scenario: Scenario) -> None:
    lifecycle = Lifecycle(scenario, transition)
    World(scenario, lifecycle, known_ids=True).walk(1_000_000)
    asked: dict[int, list[Question]] = {}
    for node, act, sender, behind in lifecycle.replies:
        asked.setdefault(node, []).append((act, sender, behind))
    compared = 0
    for (node, act, sender, behind), reply in lifecycle.replies.items():
        _, twin = answer(lifecycle, lifecycle.states[node], (act, sender, behind))
        if twin is None or twin == lifecycle.states[reply.node]:
            continue
        for question in asked.get(reply.node, ()):
            code, after = answer(lifecycle, twin, question)
            expected = lifecycle.replies[(reply.node, *question)]
            assert code == expected.code
            assert after is None or canonical(after) == canonical(lifecycle.states[expected.node])
            compared += 1
    assert compared > 10_000
