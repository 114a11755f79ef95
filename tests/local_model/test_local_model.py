"""A small real model through all three adapters. What it says is of no worth and never asserted; that it comes whole, is counted and ends well is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from checkrein.agent.agent import Agent
from checkrein.loop.events import Failed
from checkrein.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal
from checkrein.providers.model import WireModel
from checkrein.tools.function import tool
from checkrein.values import JsonObject
from tests.acceptance.example_tasks import REPORT, copied
from tests.counts import report
from tests.unit.cli.folders import Printed, Shell

REQUEST = ModelRequest("request-001", (UserMessage("u1", "What is 2+2?"),))
MODEL = "smollm2"
LIMITS = ("-c", "temperature=0", "-c", "max_output_tokens=400")
REPORT_SECONDS = 240
"""The task itself has 120 seconds; the rest is for a machine with other work."""
PHASES = {0: "SUCCEEDED", 1: "FAILED", 4: "BLOCKED", 5: "BLOCKED"}


@tool(idempotent=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def answered(model: WireModel, request: ModelRequest) -> tuple[list[Chunk], ModelResponse]:
    try:
        items = [item async for item in model.stream(request, CancelSignal())]
    finally:
        await model.aclose()
    (response,) = (item for item in items if isinstance(item, ModelResponse))
    assert items[-1] is response
    return [item for item in items if not isinstance(item, ModelResponse)], response


def calls_of(messages: Sequence[Message]) -> list[ToolCall]:
    said = [block for message in messages if isinstance(message, AssistantMessage) for block in message.content]
    return [block for block in said if isinstance(block, ToolCall)]


async def test_an_answer_streams_to_its_end_with_its_usage(model: WireModel) -> None:
    chunks, response = await answered(model, REQUEST)
    pieces = [chunk.delta for chunk in chunks if isinstance(chunk, TextDelta)]
    assert len(pieces) == len(chunks) > 1
    assert response.message.content == (Text("".join(pieces)),)
    assert response.stop_reason == "stop"
    assert response.usage.input_tokens > 0
    assert response.usage.output_tokens >= len(pieces)
    assert response.usage.cost is None, "nobody knows the price of a server of one's own"


async def test_an_answer_that_its_limit_cuts_off_says_so(model: WireModel, wire: str) -> None:
    request = ModelRequest("request-001", REQUEST.messages, settings=JsonObject({"max_output_tokens": 3}))
    _, response = await answered(model, request)
    assert response.usage.output_tokens == 3
    # Over Responses this server calls every answer completed; the page on other servers says so.
    assert response.stop_reason == ("stop" if wire == "responses" else "length")


async def test_a_conversation_of_two_turns_completes(model: WireModel) -> None:
    async with Agent(model=model) as agent:
        results = [await agent.prompt(text) for text in ("What is 2+2?", "Say hello.")]
    await model.aclose()
    assert [result.status for result in results] == ["completed", "completed"]
    assert [message.role for message in agent.messages] == ["user", "assistant"] * 2


def added(number: int, a: int, b: int) -> list[Message]:
    """Return a turn in which the tool was used, from which so small a model learns how."""
    call = ToolCall(f"call-{number}", "add", {"a": a, "b": b})
    return [
        UserMessage(f"user-{number}", f"Add {a} and {b}."),
        AssistantMessage(f"asked-{number}", (call,)),
        ToolResult(f"result-{number}", call.id, "add", str(a + b)),
        AssistantMessage(f"said-{number}", (Text(f"The sum is {a + b}."),)),
    ]


async def test_the_model_calls_a_tool_and_goes_on_with_its_result(model: WireModel, wire: str) -> None:
    before = [*added(1, 5, 7), *added(2, 20, 3)]
    async with Agent(model=model, tools=[add], messages=before, max_steps=4) as agent:
        result = await agent.prompt("Add 1 and 2.")
    await model.aclose()
    made = agent.messages[len(before) :]
    calls = calls_of(made)
    results = [message for message in made if isinstance(message, ToolResult)]
    assert calls, "no call came"
    assert [item.tool_call_id for item in results] == [call.id for call in calls]
    assert result.status != "cancelled"
    end = result.error.code if isinstance(result, Failed) else result.status
    said = [
        f"{call.name} {call.malformed or dict(call.arguments)} → {item.content}"
        for call, item in zip(calls, results, strict=True)
    ]
    report(f"calls over {wire}", len(calls), passed=len(results), detail={"end": end, "calls": said})


def test_the_store_report_ends_well_and_says_why(url: str, tmp_path: Path) -> None:
    copied(tmp_path)
    shell = Shell(tmp_path)
    words = ("--model", f"compatible/{MODEL}", "-c", f"base_url={url}/v1", *LIMITS)
    process = shell.start("run", tmp_path / "examples" / REPORT, "--trust", "--json", *words)
    try:
        out, err = process.communicate(timeout=REPORT_SECONDS)
    finally:
        process.kill()
    ended = Printed(process.returncode, out, err)
    end = ended.records[-1]
    assert end["phase"] == PHASES[ended.code]
    assert ended.code == 0 or why(ended.records)
    replayed = shell.spawn("replay", str(end["run_id"]))
    assert replayed.code == 0
    assert "0 model calls, 0 tool calls, state equal" in replayed.out
    report("store report", 1, passed=1, detail={"exit": ended.code, "phase": end["phase"], "why": why(ended.records)})


def why(records: Sequence[Mapping[str, object]]) -> str:
    """Return what a run that did not succeed says of it: what it waits for, or the code of its failure."""
    causes = [
        cast("Mapping[str, Mapping[str, str]]", record["data"]) for record in records if record.get("type") == "blocked"
    ]
    return str(records[-1]["code"] or (causes[-1]["cause"]["message"] if causes else ""))
