"""A script says what is wrong with it before anything is played, and then plays what it says."""

from pathlib import Path

import pytest

from checkrein.agent.agent import Agent, AgentOptions
from checkrein.cli.chat_script import Call, Reply, ScriptPlayer, read_script
from checkrein.cli.chat_tools import TOOL_NAMES, tools_with
from checkrein.cli.exits import Usage
from checkrein.loop.events import RunResult
from checkrein.loop.options import Retry
from checkrein.testing import ManualClock
from tests.docs.pages import ROOT

CLI_PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def script_of(folder: Path, text: str) -> Path:
    file = folder / "script.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "key `reply`: is missing; write at least one [[reply]]"),
        ("reply = []", "key `reply`: expected `array` of length >= 1; write at least one"),
        ("[[reply]\n", "is no TOML: Expected ']]' at the end of an array declaration (at line 1, column 8); correct"),
        ("[[reply]]\n\ntext = a", "(at line 3, column 8)"),
        ("replies = 3", "unknown key `replies`; did you mean `reply`?"),
        ("x = 3", "unknown key `x`; known are reply, repeat"),
        ("repeat = 1\n[[reply]]\ntext = 'a'", "key `repeat`: expected `bool`, got `int`; write repeat = true"),
        ("[[reply]]\ntext = 'a'\n[[reply]]\ntext = 3", "[[reply]] number 2: key `text`: expected `str`, got `int`"),
        ("[[reply]]\ntex = 'a'", "[[reply]] number 1: unknown key `tex`; did you mean `text`?"),
        ("[[reply]]\ntext = 'a'\ndelay = '1'", "key `delay`: expected `float`, got `str`; write seconds, 0 to 60"),
        ("[[reply]]\ntext = 'a'\ndelay = -1", "key `delay`: expected `float` >= 0.0; write seconds"),
        ("[[reply]]\ntext = 'a'\ndelay = 61", "key `delay`: expected `float` <= 60.0; write seconds"),
        ("[[reply]]\ntext = 'a'\ndelay = nan", "key `delay`: expected `float` >= 0.0"),
        ("[[reply]]", "[[reply]] number 1: it says nothing; write text"),
        ("[[reply]]\ntext = ' '", "[[reply]] number 1: it says nothing; write text"),
        ("[[reply]]\ntext = 'a'\nerror = 'b'", "key `error`: a reply that fails says and calls nothing; remove"),
        ("[[reply]]\ncall = ['wait']", "number 1: [[reply.call]] number 1: expected `object`, got `str`; write each"),
        ("[[reply]]\n[[reply.call]]\n", "[[reply.call]] number 1: key `tool`: is missing; write one of wait, block"),
        ("[[reply]]\n[[reply.call]]\ntol = 'wait'", "unknown key `tol`; did you mean `tool`?"),
        ("[[reply]]\n[[reply.call]]\ntool = 'wiat'", "key `tool`: there is no tool 'wiat'; did you mean 'wait'?"),
        ("[[reply]]\n[[reply.call]]\ntool = 'read_file'", "there is no tool 'read_file'; there are wait, block, clock"),
        ("[[reply]]\n[[reply.call]]\ntool = 'wait'\narguments = 5", "key `arguments`: expected `object`, got `int`"),
        (
            "[[reply]]\n[[reply.call]]\ntool = 'wait'\narguments = { a = 1979-05-27 }",
            "[[reply.call]] number 1: key `arguments`: date has no JSON form (at /a); write text, numbers",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_place_and_fix(tmp_path: Path, text: str, said: str) -> None:
    file = script_of(tmp_path, text)
    with pytest.raises(Usage) as caught:
        read_script(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert said in str(caught.value)
    assert "; " in str(caught.value)


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="cannot be read: No such file"):
        read_script(tmp_path / "none.toml")
    with pytest.raises(Usage, match="cannot be read: Is a directory"):
        read_script(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Usage, match="is no TOML"):
        read_script(tmp_path / "bytes.toml")


async def answers(text: str, folder: Path, *prompts: str) -> list[RunResult]:
    """The results of prompts to an agent that plays a script, without waiting for any time."""
    clock = ManualClock()
    player = ScriptPlayer(read_script(script_of(folder, text)), clock)
    options = AgentOptions(clock=clock, retry=Retry(2))
    agent = Agent(model=player, tools=tools_with(clock), options=options)
    found: list[RunResult] = []
    for prompt in prompts:
        stream = agent.prompt(prompt)
        while not stream.is_done:
            await clock.advance(1.0)
        found.append(await stream)
    return found


async def test_a_reply_is_streamed_word_by_word_and_is_whole_in_the_end(tmp_path: Path) -> None:
    text = "[[reply]]\nthinking = 'Let me think.'\ntext = ' One  two\\nthree '\ndelay = 2".replace("'", '"')
    clock = ManualClock()
    agent = Agent(model=ScriptPlayer(read_script(script_of(tmp_path, text)), clock), options=AgentOptions(clock=clock))
    stream = agent.prompt("go")
    begun = clock.monotonic()
    while not stream.is_done:
        await clock.advance(1.0)
    chunks = [event.chunk for event in stream if event.type == "model.chunk"]
    assert [chunk.delta for chunk in chunks if chunk.type == "text_delta"] == [" One  ", "two\n", "three "]
    assert "".join(chunk.delta for chunk in chunks if chunk.type == "thinking_delta") == "Let me think."
    assert clock.monotonic() - begun >= 12
    result = await stream
    assert (result.status == "completed" and result.final_text) == " One  two\nthree "


async def test_calls_are_made_and_their_results_read(tmp_path: Path) -> None:
    text = """
        [[reply]]
        text = "a"
        [[reply.call]]
        tool = "wait"
        arguments = { seconds = 3 }
        [[reply.call]]
        tool = "clock"
        [[reply]]
        text = "b"
    """
    (result,) = await answers(text, tmp_path, "go")
    assert result.status == "completed"
    found = [message.content for message in result.messages if message.role == "tool_result"]
    assert found[0] == "waited 3 s"
    assert str(found[1]).endswith("+00:00")


async def test_arguments_that_a_tool_does_not_take_are_an_error_result(tmp_path: Path) -> None:
    text = "[[reply]]\n[[reply.call]]\ntool = 'block'\narguments = { seconds = -1 }\n[[reply]]\ntext = 'b'"
    (result,) = await answers(text, tmp_path, "go")
    assert [message.is_error for message in result.messages if message.role == "tool_result"] == [True]


async def test_a_failing_reply_fails_once_and_the_next_one_answers_the_same_request(tmp_path: Path) -> None:
    (result,) = await answers("[[reply]]\nerror = 'overloaded'\n[[reply]]\ntext = 'b'", tmp_path, "go")
    assert result.status == "completed"


async def test_a_script_that_is_over_says_so(tmp_path: Path) -> None:
    first, second = await answers("[[reply]]\ntext = 'a'", tmp_path, "one", "two")
    assert first.status == "completed"
    assert second.status == "failed"
    assert "the script is over; `repeat = true`" in second.error.message


async def test_a_script_that_repeats_begins_anew(tmp_path: Path) -> None:
    found = await answers("repeat = true\n[[reply]]\ntext = 'a'\n[[reply]]\ntext = 'b'", tmp_path, *"123")
    assert [result.final_text for result in found if result.status == "completed"] == ["a", "b", "a"]


def test_the_shipped_script_is_one() -> None:
    assert len(read_script(ROOT / "examples" / "chat" / "tour.toml").reply) >= 4


def test_every_key_and_tool_is_documented() -> None:
    assert [name for name in Reply.__struct_fields__ if f"\n| `{name}` |" not in CLI_PAGE] == []
    assert [name for name in Call.__struct_fields__ if f"`{name}`" not in CLI_PAGE] == []
    assert tuple(tool.name for tool in tools_with(ManualClock())) == TOOL_NAMES
    assert [name for name in TOOL_NAMES if f"\n| `{name}` |" not in CLI_PAGE] == []
