"""Records: what is kept of a conversation over a wire, that no secret is, and that it plays back as it was."""

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from checkrein.errors import ModelError, TaskError
from checkrein.messages import UserMessage
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse
from checkrein.ports.tool import CancelSignal
from checkrein.providers.chat.client import COMPATIBLE_CHAT
from checkrein.providers.model import Access, Key, WireModel
from checkrein.providers.record import FileRecorder, public_url, read_record
from checkrein.providers.replay import ReplayModel, replay
from checkrein.providers.settings import read_settings
from checkrein.testing import ManualClock
from tests.unit.providers.wire_bytes import STREAMS, events_of, golden
from tests.unit.providers.wire_server import Answer, WireServer, error, sse

KEY = "sk-test-0123456789abcdef"
WORDS: tuple[Mapping[str, object] | str, ...] = (
    {"id": "r1", "model": "a-model", "choices": [{"delta": {"content": "Hello"}}]},
    {"choices": [{"delta": {"content": f" {KEY}"}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    "[DONE]",
)
WHOLE = Answer((sse(*WORDS),))
CUT = Answer((sse(*WORDS[:1]),), ending="cut")
BUSY = error(429, {"message": f"slow down {KEY}", "type": "rate_limit_error"}, {"retry-after": "7"})
FIRST = ModelRequest("request-001", (UserMessage("u1", f"my key is {KEY}"),))
SECOND = ModelRequest("request-002", (UserMessage("u1", "hello"),))

Heard = list[Chunk | ModelResponse | tuple[str, str, bool, float | None]]


async def heard(model: WireModel | ReplayModel, *requests: ModelRequest) -> Heard:
    """Return all that a model says, and the errors."""
    found: Heard = []
    for request in requests:
        try:
            found.extend([item async for item in model.stream(request, CancelSignal())])
        except ModelError as failed:
            found.append((failed.code, failed.message, failed.is_transient, failed.retry_after))
    return found


async def recorded(file: Path, *answers: Answer) -> Heard:
    requests = [FIRST] * (len(answers) - 1) + [SECOND]
    async with WireServer(answers) as server:
        access = Access("a-model", server.url, Key(KEY))
        model = WireModel(COMPATIBLE_CHAT, access, read_settings({"temperature": "0.5"}), clock=ManualClock())
        model = FileRecorder(file, "compatible", secrets=(KEY,)).of(model)
        try:
            return await heard(model, *requests)
        finally:
            await model.aclose()


async def test_a_record_holds_requests_events_and_ends_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    await recorded(file, BUSY, CUT, WHOLE)
    text = file.read_text(encoding="utf-8")
    assert KEY not in text
    assert "authorization" not in text.lower()
    assert file.stat().st_mode & 0o077 == 0
    record = read_record(file)
    assert record.head is not None
    assert (record.head.provider, record.head.wire, record.head.model) == ("compatible", "chat", "a-model")
    assert record.head.settings == {"temperature": 0.5}
    assert [answer.request and answer.request.request for answer in record.answers] == [
        "request-001",
        "request-001",
        "request-002",
    ]
    assert [answer.end and answer.end.end for answer in record.answers] == [
        "MODEL_RATE_LIMIT",
        "MODEL_STREAM_FAILED",
        "complete",
    ]
    assert [len(answer.events) for answer in record.answers] == [0, 1, 4]


async def test_a_record_plays_back_what_was_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "record.jsonl"
    first = await recorded(file, BUSY, CUT, WHOLE)
    monkeypatch.setenv("COMPATIBLE_API_KEY", KEY)
    again = await heard(replay(str(file)), FIRST, FIRST, SECOND)
    hidden = msgspec.json.decode(msgspec.json.encode(first).decode().replace(KEY, "***"))
    assert msgspec.json.decode(msgspec.json.encode(again)) == hidden
    assert again[0] == ("MODEL_RATE_LIMIT", again[0][1], True, 7.0)  # type: ignore[index]


async def test_a_request_that_differs_is_refused_and_the_difference_is_named(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    await recorded(file, WHOLE)
    other = ModelRequest("request-002", (UserMessage("u1", "goodbye"),))
    (failed,) = await heard(replay(str(file)), other)
    assert isinstance(failed, tuple)
    assert failed[0] == "MODEL_REPLAY"
    assert '/messages/0/content was "hello", and is "goodbye"' in failed[1]
    assert failed[2] is False
    (failed,) = await heard(replay(str(file), {"temperature": 1}), SECOND)
    assert "/temperature was 0.5, and is 1.0" in str(failed)
    more = ModelRequest("request-002", (*SECOND.messages, UserMessage("u2", "and more")))
    (failed,) = await heard(replay(str(file)), more)
    assert "/messages had 1 items, and has 2" in str(failed)


async def test_a_request_that_was_never_recorded_gets_no_answer(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    await recorded(file, WHOLE)
    model = replay(str(file))
    assert len(await heard(model, SECOND)) == 3
    (failed,) = await heard(model, SECOND)
    assert "no answer to request-002 was recorded: 0 of 1 answers" in str(failed)


async def test_a_session_that_goes_on_in_another_process_finds_its_place(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    await recorded(file, WHOLE, WHOLE)
    assert len(await heard(replay(str(file)), SECOND)) == 3


@pytest.mark.parametrize("lines", range(1, 7))
async def test_a_record_that_ends_where_its_process_was_killed_is_a_broken_stream(tmp_path: Path, lines: int) -> None:
    file = tmp_path / "record.jsonl"
    await recorded(file, WHOLE)
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[: lines + 1])[:-9])
    if lines == 1:
        with pytest.raises(TaskError, match="holds no answer"):
            replay(str(file))
        return
    said = await heard(replay(str(file)), SECOND)
    assert isinstance(said[-1], tuple)
    assert (said[-1][0], said[-1][2]) == ("MODEL_STREAM_FAILED", True)


@pytest.mark.parametrize("wire", sorted(folder.name for folder in STREAMS.iterdir()))
async def test_every_golden_stream_that_is_whole_plays_as_a_model(wire: str) -> None:
    played = 0
    for name, _events in golden(wire):
        file = STREAMS / wire / f"{name}.jsonl"
        assert read_record(file).answers[0].events == tuple(events_of(file))
        said = await heard(replay(str(file)), SECOND)
        played += isinstance(said[-1], ModelResponse)
    assert played > 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no answer"),
        ("[1]\n{}", "line 1"),
        ('{"other": 1}\n{}', "line 1: is no line of a record"),
        ('{"data": 3}\n{}', "line 1"),
        ('{"data": "{}"}', "is no whole answer of any wire"),
    ],
)
def test_what_is_no_record_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "record.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TaskError, match=said) as caught:
        replay(str(file))
    assert str(file) in str(caught.value)


def test_two_models_in_one_record_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    heads = [{"record": 1, "provider": "compatible", "wire": "chat", "model": name} for name in ("one", "two")]
    file.write_text("\n".join(map(json.dumps, heads)), encoding="utf-8")
    with pytest.raises(TaskError, match="line 2: another model is asked"):
        read_record(file)


async def test_a_record_that_is_gone_on_with_drops_the_line_its_writer_died_in(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    await recorded(file, WHOLE)
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"request": "request-003", "bo')
    FileRecorder(file, "compatible", goes_on=True)
    assert file.read_bytes() == whole
    assert FileRecorder(tmp_path / "new.jsonl", "compatible", goes_on=True)
    with pytest.raises(TaskError, match="is there already"):
        FileRecorder(file, "compatible")


def test_an_address_is_kept_without_its_password() -> None:
    assert public_url("http://me:word@127.0.0.1:1/v1?a=b") == "http://127.0.0.1:1/v1?a=b"
    assert public_url("http://127.0.0.1:1/v1") == "http://127.0.0.1:1/v1"


def test_replay_without_a_file_says_how_it_is_named() -> None:
    with pytest.raises(TaskError, match="write it as replay/FILE"):
        replay("")
