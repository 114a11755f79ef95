"""What `@tool` makes of a function: name, words, schema, promises, typed values."""

import datetime
import subprocess
import sys
import threading
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import BaseModel, Field, field_validator

from checkrein.clock import SystemClock
from checkrein.errors import DataError, InvalidArguments
from checkrein.ports.tool import Tool, ToolContext, ToolOutput
from checkrein.tools.function import FunctionTool, tool
from checkrein.values import JsonObject
from tests.unit.tools.calls import context


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0

    @field_validator("x")
    @classmethod
    def _refuse_thirteen(cls, value: int) -> int:
        if value == 13:
            msg = "thirteen is out of bounds"
            raise ValueError(msg)
        return value


def by_address(address: str) -> str:
    return address


def by_number(number: int) -> int:
    return number


def by_handle(handle: str) -> str:
    return handle


@tool
def place(
    point: Point,
    name: Annotated[str, Field(min_length=1, description="what to call it")],
    ctx: ToolContext,
    colour: Literal["red", "blue"] = "red",
    count: int = 1,
) -> str:
    """Place a point on the map.

    Only one at a time.

    Args:
        point: where it goes,
            in metres
        count: how many (of them)
        ctx: not for a model

    Returns:
        Nothing of interest.
    """
    return f"{type(point).__name__} {point.x} {name} {colour} {count} {ctx.call_id}"


async def run(made: FunctionTool, arguments: dict[str, object]) -> object:
    result = await made.call(JsonObject(arguments), context())
    assert isinstance(result, ToolOutput)
    return result.value


def properties(made: FunctionTool) -> dict[str, dict[str, object]]:
    return cast("dict[str, dict[str, object]]", made.schema["properties"])


def test_a_tool_satisfies_the_port() -> None:
    checked: Tool = place
    assert (checked.name, checked.description) == ("place", "Place a point on the map.\n\nOnly one at a time.")


def test_the_schema_is_strict_and_says_what_the_signature_says() -> None:
    assert place.schema["additionalProperties"] is False
    assert place.schema["required"] == ["point", "name"]
    assert properties(place)["colour"] == {"default": "red", "enum": ["red", "blue"], "type": "string"}
    assert properties(place)["name"] == {"description": "what to call it", "minLength": 1, "type": "string"}


def test_the_docstring_describes_parameters() -> None:
    assert properties(place)["point"] == {"$ref": "#/$defs/Point", "description": "where it goes, in metres"}
    assert properties(place)["count"] == {"default": 1, "description": "how many (of them)", "type": "integer"}


def test_the_context_is_not_in_the_schema_and_reaches_the_body() -> None:
    assert sorted(properties(place)) == ["colour", "count", "name", "point"]


async def test_arguments_arrive_typed_and_defaults_are_filled_in() -> None:
    assert await run(place, {"point": {"x": 2.0}, "name": "A"}) == "Point 2 A red 1 1.0"


async def test_an_integral_number_arrives_as_int() -> None:
    @tool
    def kind(n: int, f: float) -> list[str]:
        return [type(n).__name__, type(f).__name__]

    assert await run(kind, {"n": 1.0, "f": 1}) == ["int", "float"]


async def test_a_union_takes_the_type_that_was_sent() -> None:
    @tool
    def kind(value: int | str | None) -> str:
        return repr(value)

    assert [await run(kind, {"value": value}) for value in (5, "5", None)] == ["5", "'5'", "None"]


async def test_rich_types_arrive_as_themselves() -> None:
    @tool
    def kinds(day: datetime.date, colour: Colour, pair: tuple[int, str]) -> str:
        return f"{day.year} {colour.name} {pair}"

    assert await run(kinds, {"day": "2024-02-03", "colour": "blue", "pair": [1, "a"]}) == "2024 BLUE (1, 'a')"


def test_what_only_a_model_can_refuse_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidArguments) as caught:
        place.check(JsonObject({"point": {"x": 13}, "name": "A"}))
    assert caught.value.issues == (("/point/x", "Value error, thirteen is out of bounds"),)


async def test_parameters_may_have_any_name_and_kind() -> None:
    @tool
    def odd(model_dump: int, /, schema: int, *, _x: int = 3, self: int = 4) -> list[int]:
        return [model_dump, schema, _x, self]

    assert await run(odd, {"model_dump": 1, "schema": 2}) == [1, 2, 3, 4]


async def test_methods_and_partials_and_wrapped_coroutines_are_tools_too() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self, n: int) -> int:
            self.count += n
            return self.count

    async def slow(n: int, factor: int) -> int:
        await SystemClock().sleep(0)
        return n * factor

    counter = Counter()
    assert await run(tool(counter.add), {"n": 2}) == 2
    assert counter.count == 2
    assert await run(tool(name="double")(partial(slow, factor=2)), {"n": 4}) == 8
    assert await run(tool(name="lazily")(lambda: slow(2, 3)), {}) == 6


async def test_results_may_be_models() -> None:
    @tool
    def made() -> dict[str, object]:
        return {"points": [Point(x=1), Point(x=2, y=3)]}

    assert await run(made, {}) == {"points": [{"x": 1, "y": 0}, {"x": 2, "y": 3}]}


async def test_a_plain_function_runs_in_a_thread_unless_it_is_inline() -> None:
    @tool
    def there() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await run(there, {}) is False
    assert await run(tool(inline=True, name="here")(there.function), {}) is True


def test_promises_are_careful_by_default() -> None:
    @tool
    async def asynchronous() -> None: ...

    @tool
    def plain() -> None: ...

    assert (plain.traits.idempotent, plain.traits.cancellable, plain.traits.timeout_seconds) == (False, False, None)
    assert asynchronous.traits.cancellable is True
    assert (plain.traits.has_probe, plain.traits.has_poll, plain.traits.sequential) == (False, False, False)


def test_every_option_is_a_promise() -> None:
    @tool(
        name="n", idempotent=True, cancellable=False, timeout_seconds=2, sequential=True, reconcile=lambda: "done",
        poll=by_handle,
    )  # fmt: skip
    async def made() -> None: ...

    traits = made.traits
    assert (made.name, traits.idempotent, traits.cancellable, traits.timeout_seconds) == ("n", True, False, 2)
    assert (traits.sequential, traits.has_probe, traits.has_poll) == (True, True, True)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65, "a\n", "../x"])
def test_a_name_that_providers_refuse_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="is no name for a tool"):
        tool(name=name)(lambda: None)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_is_a_positive_number(limit: float) -> None:
    with pytest.raises(DataError, match="timeout_seconds"):
        tool(timeout_seconds=limit)(place.function)


def test_promises_that_cannot_be_kept_are_refused() -> None:
    async def asynchronous() -> None: ...

    with pytest.raises(TypeError, match="inline is for plain functions"):
        tool(inline=True)(asynchronous)
    with pytest.raises(TypeError, match="cannot be cancelled"):
        tool(cancellable=True)(place.function)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="has no option 'retries'"):
        cast("Any", tool)(retries=3)


def test_arguments_without_names_are_refused() -> None:
    def loose(*rest: int) -> None: ...

    with pytest.raises(TypeError, match=r"takes \*rest"):
        tool(loose)


def test_a_parameter_without_annotation_has_no_schema() -> None:
    def bare(x) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001  what is tested

    with pytest.raises(TypeError, match="parameter x of bare has no annotation"):
        _ = tool(cast("Any", bare)).schema


def test_a_parameter_without_json_form_has_no_schema() -> None:
    def odd(lock: threading.Event) -> None: ...

    with pytest.raises(TypeError, match="has no JSON form"):
        _ = tool(odd).schema


def test_helpers_may_ask_only_for_what_the_tool_has() -> None:
    def send(to: str) -> None: ...

    with pytest.raises(TypeError, match="reconcile asks for 'address'"):
        _ = tool(reconcile=by_address)(send).schema
    with pytest.raises(TypeError, match="poll asks for 'number'"):
        _ = tool(poll=by_number)(send).schema


def test_pydantic_and_jsonschema_load_at_the_first_schema() -> None:
    code = (
        "import sys\n"
        "from checkrein.tools.function import tool\n"
        "from checkrein.tools.dispatch import Dispatcher\n"
        "from checkrein.tools.registry import ToolRegistry\n"
        "made = tool(name='f')(lambda: None)\n"
        "ToolRegistry([made]).snapshot(); made.description; made.traits\n"
        "heavy = {'pydantic', 'jsonschema_rs'}\n"
        "assert not heavy & set(sys.modules)\n"
        "made.schema\n"
        "assert heavy <= set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
