"""`chat` through pipes: each line is a prompt, replies come as lines or as JSON, and nothing keeps the process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkrein.agent.agent import Agent
from checkrein.cli.chat_lines import record_of
from checkrein.loop.events import AgentEvent
from checkrein.messages import ToolCall
from checkrein.testing import ManualClock, ScriptedModel, reply
from checkrein.values import canonical_json
from tests.unit.cli.folders import Printed, Shell
from tests.unit.cli.models import install_models

Checkrein = Callable[..., Printed]
Chat = Callable[..., "subprocess.Popen[bytes]"]
SECONDS = 30

TWO = '[[reply]]\ntext = "Hello,\\nyou."\n[[reply]]\ntext = "Good \\u001b[31mbye."\n'
DEAF = '[[reply]]\ntext = "Now:"\n[[reply.call]]\ntool = "block"\narguments = { seconds = 3600 }\n'


@pytest.fixture
def chat(shell: Shell) -> Iterator[Chat]:
    """Start `chat` with pipes, and leave no process behind."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*words: str | Path) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-m", "checkrein", "chat", *map(str, words)],
            cwd=shell.home,
            env=shell.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                assert pipe
                pipe.close()


def script(shell: Shell, text: str) -> Path:
    file = shell.home / "script.toml"
    file.write_text(text, encoding="utf-8")
    return file


def answered(process: "subprocess.Popen[bytes]", said: bytes = b"") -> Printed:
    out, err = process.communicate(said, SECONDS)
    return Printed(process.returncode, out.decode(), err.decode())


def heard(process: "subprocess.Popen[bytes]", wanted: str) -> None:
    """Read lines of stdout until one holds `wanted`."""
    assert process.stdout
    assert any(wanted in line.decode() for line in process.stdout), wanted


def typed(process: "subprocess.Popen[bytes]", text: bytes) -> None:
    assert process.stdin
    process.stdin.write(text)
    process.stdin.flush()


def test_each_line_is_a_prompt_and_each_reply_is_printed(shell: Shell, chat: Chat) -> None:
    printed = answered(chat("--script", script(shell, TWO)), b"Hi\n\n  \r\nBye")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out == "Hello,\nyou.\nGood \\x1b[31mbye.\n"


@pytest.mark.parametrize("given", [b"", b"\n\n"])
def test_no_prompt_at_all_is_no_error(shell: Shell, chat: Chat, given: bytes) -> None:
    printed = answered(chat("--script", script(shell, TWO)), given)
    assert (printed.code, printed.out, printed.err) == (0, "", "")


def test_a_prompt_is_what_the_line_holds(shell: Shell, chat: Chat) -> None:
    install_models(shell)
    long = "x" * 200_000
    printed = answered(chat("--model", "echo/v/2"), f"日本 \x1b[2J\n{long}\nlast".encode() + b"\xff\n")
    assert printed.code == 0
    assert printed.lines[0] == "v/2: 日本 \\x1b[2J"
    assert printed.lines[2].endswith(f" | {long} | last\ufffd")


def test_the_exit_code_says_that_the_last_run_failed(shell: Shell, chat: Chat) -> None:
    text = "[[reply]]\ntext = 'a'\n"
    assert answered(chat("--script", script(shell, text)), b"one\n").code == 0
    printed = answered(chat("--script", script(shell, text)), b"one\ntwo\n")
    assert printed.code == 1
    assert printed.lines[-1].startswith("failed (MODEL_STREAM_FAILED): the script is over")


def test_json_lines_are_the_events_of_the_runs(shell: Shell, chat: Chat) -> None:
    text = "[[reply]]\ntext = '\u202ea'\n[[reply.call]]\ntool = 'clock'\n[[reply]]\ntext = 'b'\n"
    printed = answered(chat("--script", script(shell, text), "--json"), b"go\n")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.isascii()
    records = printed.records
    assert [record["sequence"] for record in records] == list(range(len(records)))
    assert [record["type"] for record in records if record["type"] != "model.chunk"] == [
        "message.accepted",
        "tool.started",
        "tool.finished",
        "run.finished",
    ]
    result = records[-1]["result"]
    assert isinstance(result, dict)
    assert (result["status"], result["final_text"]) == ("completed", "b")
    assert "messages" not in result


async def test_every_kind_of_event_has_a_json_form() -> None:
    async def held(_request: object, signal: object) -> object:
        assert signal
        yield reply(ToolCall("c1", "nobody", {"a": [1, {"b": None}]}), ToolCall.parsed("c2", "x", "{"))

    agent = Agent(model=ScriptedModel([held, reply("done")]))  # type: ignore[list-item]  # a generator function
    told: list[AgentEvent] = []
    agent.subscribe(lambda event, _signal: told.append(event))
    await agent.prompt("go")
    for event in told:
        assert json.loads(canonical_json(record_of(event)))["type"] == event.type
    assert ManualClock().now() > 0


def test_ctrl_c_while_a_run_works_cancels_it_and_exits_130(shell: Shell, chat: Chat) -> None:
    text = "[[reply]]\ntext = 'Now:'\n[[reply.call]]\ntool = 'wait'\narguments = { seconds = 3600 }\n"
    process = chat("--script", script(shell, text))
    typed(process, b"go\nand never this\n")
    heard(process, "▸ wait")
    process.send_signal(signal.SIGINT)
    printed = answered(process)
    assert printed.code == 130
    assert printed.lines[-2:] == [
        "cancelled: what was said and done in this turn is not part of the conversation",
        "  wait: outcome unknown",
    ]
    assert printed.err == ""


def test_ctrl_c_while_nothing_runs_leaves(shell: Shell, chat: Chat) -> None:
    process = chat("--script", script(shell, TWO))
    typed(process, b"Hi\n")
    heard(process, "you.")
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 0


def test_a_second_ctrl_c_leaves_at_once(shell: Shell, chat: Chat) -> None:
    process = chat("--script", script(shell, DEAF))
    typed(process, b"go\n")
    heard(process, "▸ block")
    while process.poll() is None:  # two signals that come together are one
        process.send_signal(signal.SIGINT)
        os.sched_yield()
    assert process.returncode == 130
    assert process.stderr
    assert "left at once" in process.stderr.read().decode()


def test_a_model_that_never_ends_cannot_keep_the_process(shell: Shell, chat: Chat) -> None:
    install_models(shell)
    process = chat("--model", "deaf", "--json")
    typed(process, b"go\n")
    heard(process, "I am deaf.")
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 143
    assert process.stdout
    assert b'"status":"cancelled"' in process.stdout.read()
    assert process.stderr
    assert process.stderr.read() == b""


def test_a_reader_that_goes_away_is_no_error(shell: Shell, chat: Chat) -> None:
    process = chat("--script", script(shell, f"repeat = true\n{TWO}"))
    assert process.stdout
    typed(process, b"Hi\n")
    heard(process, "you.")
    process.stdout.close()
    assert process.stdin
    process.stdin.write(b"Hi\n" * 10)
    process.stdin.close()
    assert process.wait(SECONDS) == 0
    assert process.stderr
    assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name either a model with --model or a scripted conversation with --script"),
        (("--model", "a", "--script", "b"), "name either a model"),
        (("--script", "nowhere.toml"), "nowhere.toml: cannot be read"),
        (
            ("--model", "gemini/x"),
            "no model 'gemini' is installed; installed are anthropic, compatible, openai, replay",
        ),
    ],
)
def test_what_cannot_be_talked_to_is_usage(checkrein: Checkrein, words: tuple[str, ...], said: str) -> None:
    printed = checkrein("chat", *words)
    assert (printed.code, printed.out) == (2, "")
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("ehco", "no model 'ehco' is installed; did you mean 'echo'? installed are anthropic, broken, compatible"),
        ("broken/x", "--model broken/x: it cannot be made: ValueError: no key for x"),
        ("extra", "needs the extra 'models'; run: pip install 'checkrein[models]'"),
        ("missing", "--model: missing: it needs the module 'module_that_is_not_there'; install it beside checkrein"),
        ("nothing", "its entry point made int, which has no `stream`"),
        ("number", "its entry point is int, which cannot be called"),
    ],
)
def test_a_model_that_cannot_be_used_is_usage(shell: Shell, chat: Chat, model: str, said: str) -> None:
    install_models(shell)
    printed = answered(chat("--model", model))
    assert (printed.code, printed.out) == (2, "")
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1
