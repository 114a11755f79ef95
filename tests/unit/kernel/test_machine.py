"""The idiom of all machines: every edge is in the table, a missing one is the refusal, and the pictures say what the table says."""

from enum import StrEnum

import msgspec
import pytest
from msgspec.structs import replace

from checkrein.errors import IllegalTransition
from checkrein.kernel.machine import Machine, fold


class Light(StrEnum):
    RED = "RED"
    GREEN = "GREEN"
    OFF = "OFF"


class Lamp(msgspec.Struct, frozen=True):
    phase: Light
    turns: int = 0


def _turned(state: Lamp, event: str) -> Lamp:
    target = Light.OFF if event == "cut" or state.turns == 2 else Light.GREEN if state.phase is Light.RED else Light.RED
    return Lamp(target, state.turns + 1)


def _type_of(event: str) -> str:
    return event


def _subject_of(state: Lamp) -> str:
    return f"lamp{state.turns}"


LAMP: Machine[Lamp, str] = Machine(
    name="lamp",
    initial=(Light.RED,),
    ends=frozenset({Light.OFF}),
    edges={
        Light.RED: {"turn": (Light.GREEN, Light.OFF), "wait": (Light.RED,), "cut": (Light.OFF,)},
        Light.GREEN: {"turn": (Light.RED,)},
        Light.OFF: {},
    },
    handlers={"turn": _turned, "wait": lambda state, _: state, "cut": _turned},
    type_of=_type_of,
    subject_of=_subject_of,
)


def test_an_event_takes_the_edge_that_its_handler_chose() -> None:
    assert LAMP.evolve(Lamp(Light.RED), "turn") == Lamp(Light.GREEN, 1)
    assert LAMP.evolve(Lamp(Light.RED, 2), "turn") == Lamp(Light.OFF, 3)
    assert LAMP.evolve(Lamp(Light.RED), "wait") == Lamp(Light.RED)


def test_a_missing_edge_names_all_coordinates() -> None:
    with pytest.raises(IllegalTransition) as caught:
        LAMP.evolve(Lamp(Light.GREEN, 1), "wait")
    error = caught.value
    assert (error.machine, error.phase, error.event, error.subject) == ("lamp", "GREEN", "wait", "lamp1")
    assert error.allowed == ("turn",)
    for word in ("lamp", "GREEN", "wait", "lamp1", "turn"):
        assert word in str(error)


def test_an_end_allows_nothing_and_says_so() -> None:
    with pytest.raises(IllegalTransition, match="this phase is an end"):
        LAMP.evolve(Lamp(Light.OFF), "turn")


def test_an_unknown_event_is_illegal() -> None:
    with pytest.raises(IllegalTransition):
        LAMP.evolve(Lamp(Light.RED), "explode")


def test_a_handler_cannot_take_an_edge_that_is_not_drawn() -> None:
    with pytest.raises(IllegalTransition):
        LAMP.evolve(Lamp(Light.GREEN, 2), "turn")


def test_fold_applies_every_event_in_order() -> None:
    assert fold(LAMP.evolve, Lamp(Light.RED), ["turn", "turn", "wait"]) == Lamp(Light.RED, 2)
    assert fold(LAMP.evolve, Lamp(Light.RED), []) == Lamp(Light.RED)


def test_a_sound_table_breaks_no_law() -> None:
    assert LAMP.broken_laws() == ()


@pytest.mark.parametrize(
    ("edges", "law"),
    [
        (
            {
                Light.RED: {"cut": (Light.OFF,)},
                Light.GREEN: {"turn": (Light.RED,), "wait": (Light.RED,)},
                Light.OFF: {},
            },
            "GREEN is not reachable",
        ),
        ({**LAMP.edges, Light.OFF: {"turn": (Light.RED,)}}, "OFF is terminal and has edges"),
        ({Light.RED: LAMP.edges[Light.RED], Light.GREEN: {}, Light.OFF: {}}, "GREEN is a dead end"),
        ({Light.RED: LAMP.edges[Light.RED], Light.GREEN: LAMP.edges[Light.GREEN]}, "OFF is named but has no row"),
        ({**LAMP.edges, Light.RED: {"turn": (Light.GREEN, Light.OFF), "cut": (Light.OFF,)}}, "wait is legal nowhere"),
        ({**LAMP.edges, Light.GREEN: {"turn": (Light.RED,), "jump": (Light.RED,)}}, "jump has no handler"),
    ],
)
def test_each_law_of_tables_is_checked(edges: dict[StrEnum, dict[str, tuple[StrEnum, ...]]], law: str) -> None:
    assert law in replace(LAMP, edges=edges).broken_laws()


def test_the_diagram_draws_every_edge_but_loops() -> None:
    assert LAMP.to_mermaid().splitlines() == [
        "stateDiagram-v2",
        "    [*] --> RED",
        "    RED --> GREEN: turn",
        "    RED --> OFF: turn, cut",
        "    GREEN --> RED: turn",
        "    OFF --> [*]",
    ]


def test_the_table_draws_every_event_and_every_phase_with_edges() -> None:
    assert LAMP.to_markdown().splitlines() == [
        "| event | RED | GREEN |",
        "|---|---|---|",
        "| `turn` | GREEN or OFF | RED |",
        "| `wait` | = | – |",
        "| `cut` | OFF | – |",
    ]
