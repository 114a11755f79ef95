"""A model that drafts plans: each response is a plan of several steps, as data, and not a batch of calls.

The model sees the whole way before the first step is made, and so do hooks, approvals and people. It is told of the tools in words, and asked for text that matches a JSON Schema; providers that
can hold it to the schema do, and of the others' text the same is demanded here. The invariant: a plan comes only from text that is a plan; everything else is `PlannerFailed`, says what was
expected, and is told to the model when it is asked again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from checkrein.errors import DataError
from checkrein.harness.asking import Drafted, PlanningRequest
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.planners import Plan, PlannerFailed, Step
from checkrein.messages import Message, UserMessage
from checkrein.ports.model import ModelRequest, ToolSchema
from checkrein.values import JsonObject, parse_json, shorten

__all__ = ["StructuredPlanner", "plan_schema"]

CODE: Final = "MODEL_PLAN"
"""The code of a response that is no plan."""
_SHOWN: Final = 200
_FENCE: Final = re.compile(r"\A\s*```(?:json)?\s*\n(?P<text>.*)\n\s*```\s*\Z", re.DOTALL)
_TOLD: Final = """Answer with a plan as JSON, and nothing else: {"steps": [{"id": …, "description": …, "tool": …, "arguments": …}, …], "final": …}
- The steps are done in order. Each has an id of its own, and says in `description` what it does. A step that is done is not planned again; one that failed may come again under its id.
- `tool` is the name of a tool below, or "" for a step that only marks progress. `arguments` is a JSON object in a string, as the tool's parameters want it.
- `final` is true if the goal is reached once these steps are done, and false if you must see their results before you can plan on: then you are asked again.
- If nothing is left to do, answer with no steps."""


class _Step(msgspec.Struct, frozen=True):
    id: str | int
    description: str = ""
    tool: str | None = None
    arguments: str | dict[str, object] = ""


class _Plan(msgspec.Struct, frozen=True):
    steps: list[_Step]
    final: bool = True


def plan_schema(tools: Sequence[str]) -> Mapping[str, object]:
    """Return the JSON Schema of a plan whose steps use these tools; every object is closed and all is required, which the strictest providers demand."""
    step = {
        "type": "object",
        "additionalProperties": False,
        "required": ["id", "description", "tool", "arguments"],
        "properties": {
            "id": {"type": "string"},
            "description": {"type": "string"},
            "tool": {"type": "string", "enum": ["", *tools]},
            "arguments": {"type": "string", "description": "a JSON object"},
        },
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["steps", "final"],
        "properties": {"steps": {"type": "array", "items": step}, "final": {"type": "boolean"}},
    }


class StructuredPlanner(ModelPlanner):
    """Plans a session with a model that drafts plans of several steps; made like a `ModelPlanner`."""

    _fault: tuple[int, str] = (0, "")

    async def draft(self, request: PlanningRequest) -> Drafted:
        """Ask the model once and return the plan that it drafted.

        Raises:
            PlannerFailed: it brought no usable response, or one that is no plan; asking again may then succeed, and tells the model what was wrong.
            asyncio.CancelledError: the answer is not wanted any more.
        """
        tools = request.read_tools() if self._tools is None else self._tools
        messages: list[Message] = [*await request.read_transcript()]
        turn, fault = self._fault
        if fault and turn == request.turn:
            messages.append(UserMessage(f"fault-{request.turn}.{request.attempt}", fault))
        asked = ModelRequest(f"request-{request.turn:03}", tuple(messages), (), self._asking_for_plans(tools))
        answer, usage = await self.ask(asked, request)
        try:
            plan = _read(answer.text)
        except ValueError as error:
            self._fault = request.turn, f"that was no plan: {error}"
            reason = f"{CODE}: the model drafted no plan: {error}"
            raise PlannerFailed(reason, is_transient=True, usage=usage, code=CODE) from error
        return Drafted(plan, answer.message, usage)

    def offered(self, tools: tuple[ToolSchema, ...]) -> tuple[ToolSchema, ...]:
        """Return no tools: the model is told of them in words, and calls none."""
        del tools
        return ()

    def _asking_for_plans(self, tools: Sequence[ToolSchema]) -> JsonObject:
        settings = self._settings.decoded()
        listed = [
            json.dumps({"name": item.name, "description": item.description, "parameters": item.parameters.decoded()})
            for item in tools
        ]
        system = settings.get("system")
        parts = [*([system] if isinstance(system, str) and system else []), _TOLD, "Tools:", *(listed or ["none"])]
        names = [item.name for item in tools]
        return JsonObject({
            **settings,
            "system": "\n\n".join(parts),
            "response_schema": plan_schema(names),
            "response_name": "plan",
        })  # fmt: skip


def _read(text: str) -> Plan:
    """Return the plan that a response is.

    Raises:
        ValueError: it is none; says what was expected, and where.
    """
    fenced = _FENCE.match(text)
    try:
        plan = msgspec.json.decode((fenced["text"] if fenced else text).strip(), type=_Plan)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f'{error}; expected JSON like {{"steps": [{{"id": "1", "description": "…", "tool": "…", "arguments": "{{}}"}}], "final": true}}, got {shorten(text, _SHOWN)!r}'
        raise ValueError(msg) from error
    return Plan([_step(item) for item in plan.steps], final=plan.final)


def _step(item: _Step) -> Step:
    """Return a step; arguments that are no JSON object let it fail with an error that says so, like those of a call."""
    arguments, malformed = _arguments(item.arguments)
    tool = item.tool or None
    if tool is None:
        arguments, malformed = JsonObject(), ""
    return Step(id=item.id, description=item.description, tool_name=tool, arguments=arguments, malformed=malformed)


def _arguments(given: str | dict[str, object]) -> tuple[JsonObject, str]:
    text = given if isinstance(given, str) else json.dumps(given)
    if not text.strip():
        return JsonObject(), ""
    try:
        value = parse_json(text)
    except DataError:
        return JsonObject(), text
    return (JsonObject(value), "") if isinstance(value, dict) else (JsonObject(), text)
