"""The fake model over the Chat wire says what its script says, and runs the command that asks it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkrein.errors import ModelError
from checkrein.messages import AssistantMessage, Message, Text, Thinking, ToolCall, ToolResult, UserMessage
from checkrein.ports.model import ModelRequest, ModelResponse
from checkrein.ports.tool import CancelSignal
from checkrein.providers.reach import reach
from checkrein.providers.registry import compatible
from checkrein.testing.fake_model import FakeModelServer, main
from checkrein.testing.script import Call, Reply, Script, read_script

CALLING = Reply(thinking="A sum.", text="I add.", call=(Call("add", {"a": 1, "é": [2]}), Call("add")))
HELLO = UserMessage("u1", "hello")
SPOKEN: tuple[Message, ...] = (HELLO, AssistantMessage("a1", (Text("I add."),)), UserMessage("u2", "and?"))


async def answer(server: FakeModelServer, *messages: Message) -> ModelResponse:
    model = compatible("fake", {"base_url": server.url})
    try:
        items = [item async for item in model.stream(ModelRequest("request-001", messages), CancelSignal())]
    finally:
        await model.aclose()
    last = items[-1]
    assert isinstance(last, ModelResponse)
    return last


async def test_an_answer_is_the_reply_at_its_place_in_the_conversation_however_often_it_is_asked_for() -> None:
    async with FakeModelServer(Script((CALLING, Reply(text="Done.")))) as server:
        firsts = [await answer(server, HELLO) for _ in range(2)]
        second = await answer(server, *SPOKEN)
    assert firsts[0] == firsts[1]
    assert firsts[0].stop_reason == "tool_call"
    assert firsts[0].message.content == (
        Thinking("A sum.", "chat:reasoning_content"),
        Text("I add."),
        ToolCall("call_1_1", "add", {"a": 1, "é": [2]}),
        ToolCall("call_1_2", "add", {}),
    )
    assert second.message.content == (Text("Done."),)
    assert second.usage.input_tokens > 0


async def test_a_failure_is_given_once_and_then_the_reply_after_it() -> None:
    async with FakeModelServer(Script((Reply(error="busy"), Reply(text="Here.")))) as server:
        with pytest.raises(ModelError, match="busy") as caught:
            await answer(server, HELLO)
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_OVERLOADED", True)
        assert (await answer(server, HELLO)).message.content == (Text("Here."),)


@pytest.mark.parametrize("replies", [(Reply(text="Once."),), (Reply(error="busy"),)])
async def test_after_its_last_reply_a_script_is_over(replies: tuple[Reply, ...]) -> None:
    async with FakeModelServer(Script(replies, repeat=not replies[0].text)) as server:
        for _ in replies:
            if replies[0].error:
                with pytest.raises(ModelError, match="busy"):
                    await answer(server, HELLO)
        with pytest.raises(ModelError, match="no reply number") as caught:
            await answer(server, *(SPOKEN if replies[0].text else (HELLO,)))
    assert not caught.value.is_transient


async def test_a_script_that_repeats_begins_anew() -> None:
    async with FakeModelServer(Script((Reply(text="Again."),), repeat=True)) as server:
        assert (await answer(server, *SPOKEN)).message.content == (Text("Again."),)


async def test_models_are_listed_and_nothing_else_is_served() -> None:
    async with FakeModelServer(Script((CALLING,))) as server:
        assert (await reach(f"{server.url}/models", {}, seconds=30)).models == ("fake",)
        assert (await reach(f"{server.url}/other", {}, seconds=30)).text == "answers with status 404"


async def test_a_result_is_sent_back_by_the_id_of_its_call() -> None:
    call = AssistantMessage("a1", (ToolCall("call_1_1", "add", {}),))
    async with FakeModelServer(Script((CALLING, Reply(text="Done.")))) as server:
        await answer(server, HELLO, call, ToolResult("r1", "call_1_1", "add", "3", is_error=False))
        body = json.loads(server.asked[0])
    assert body["messages"][-1] == {"role": "tool", "tool_call_id": "call_1_1", "content": "3"}


def test_a_command_runs_with_the_address_and_its_exit_code_is_the_end(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text("[[reply]]\ntext = 'x'\n", encoding="utf-8")
    asks = "import os, sys, urllib.request as u; print(u.urlopen(os.environ['COMPATIBLE_BASE_URL'] + '/models').read()); sys.exit(7)"
    words = [sys.executable, "-m", "checkrein.testing.fake_model", script, "--", sys.executable, "-c", asks]
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7, done.stderr
    assert '"id": "fake"' in done.stdout


def test_what_cannot_be_played_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere.toml")]) == 2
    assert "nowhere.toml: cannot be read" in capsys.readouterr().err


def test_the_script_of_the_store_report_is_one() -> None:
    file = Path(__file__).parents[3] / "examples" / "models" / "store-report.toml"
    assert len(read_script(file, ("sql_query", "draw_chart", "write_file")).reply) == 4
