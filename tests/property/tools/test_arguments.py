"""Arguments: what is refused is refused before the body, and what passes never fails for its form."""

from typing import Annotated, Literal

from hypothesis import example, given, settings, strategies as st
from pydantic import BaseModel, Field

from checkrein.clock import SystemClock
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.tools.dispatch import Dispatcher, PreparedCall
from checkrein.tools.function import tool
from checkrein.tools.outcomes import FailedCall
from checkrein.values import JsonObject


class Inner(BaseModel):
    n: int
    tags: list[str] = []


@tool(inline=True)
def body(
    count: int,
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.5,
    mode: Literal["a", "b"] = "a",
    inner: Inner | None = None,
    either: int | str | None = None,
) -> None:
    """Do nothing: what is tested is whether it is reached, and with what."""
    assert type(count) is int
    assert type(ratio) is float
    assert mode in {"a", "b"}
    assert inner is None or isinstance(inner, Inner)
    assert either is None or type(either) in {int, str}


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["n", "tags", "x"]), inner),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["count", "ratio", "mode", "inner", "either", "more"]), VALUES)
MOSTLY_VALID = st.fixed_dictionaries(
    {"count": st.integers(-100, 100) | st.floats(-5, 5)},
    optional={
        "ratio": st.floats(0, 1) | st.integers(0, 1),
        "mode": st.sampled_from(["a", "b", "c"]),
        "inner": st.none()
        | st.fixed_dictionaries({"n": st.integers(0, 5)}, optional={"tags": st.lists(st.text(max_size=2))}),
        "either": st.integers(0, 5) | st.floats(0, 5) | st.text(max_size=2) | st.none(),
    },
)


@settings(max_examples=600)
@given(arguments=ARGUMENTS | MOSTLY_VALID)
@example(arguments={"count": 1.0, "either": 2.0})
@example(arguments={"count": 1e300})
async def test_prepared_arguments_reach_the_body_typed_and_all_others_are_explained(
    arguments: dict[str, object],
) -> None:
    made = Dispatcher({"body": body}, clock=SystemClock())
    call = made.prepare("body", JsonObject(arguments))
    if isinstance(call, PreparedCall):
        await body.call(call.arguments, ToolContext("1.0", 1, "", CancelSignal()))
        return
    assert isinstance(call, FailedCall)
    assert call.kind == "schema"
    assert call.issues
    assert all(where == "" or where.startswith("/") for where, _ in call.issues)
