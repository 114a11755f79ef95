"""`read_file` and `write_file` as tools."""

from pathlib import Path

import pytest

from checkrein.errors import ToolError
from checkrein.ports.tool import CancelSignal, ToolContext, ToolOutput
from checkrein.toolkit.files import read_file, write_file
from checkrein.values import JsonObject


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    (tmp_path / "run").mkdir()
    (tmp_path / "data.txt").write_text("input é", encoding="utf-8")
    inputs = {"data": tmp_path / "data.txt"}
    return ToolContext("1.0", 1, "r/1.0", CancelSignal(), workspace=tmp_path / "run", inputs=inputs)


async def call_write(context: ToolContext, path: str, content: str) -> ToolOutput:
    made = await write_file.call(JsonObject({"path": path, "content": content}), context)
    assert isinstance(made, ToolOutput)
    return made


async def call_read(context: ToolContext, path: str, offset: int = 0, max_bytes: int = 65_536) -> str:
    made = await read_file.call(JsonObject({"path": path, "offset": offset, "max_bytes": max_bytes}), context)
    assert isinstance(made, ToolOutput)
    assert isinstance(made.value, str)
    return made.value


def test_both_are_declared_idempotent_and_bounded_in_time() -> None:
    assert [item.traits.idempotent for item in (read_file, write_file)] == [True, True]
    assert [item.traits.timeout_seconds for item in (read_file, write_file)] == [60, 60]


async def test_what_was_written_is_the_artifact_and_is_read_back(context: ToolContext) -> None:
    made = await call_write(context, "./notes//a.md", "# Größe\n")
    assert (made.value, made.artifacts) == ({"path": "notes/a.md", "bytes": 10}, ("notes/a.md",))
    assert await call_read(context, "notes/a.md") == "# Größe\n"


async def test_an_empty_file_is_written_and_read(context: ToolContext) -> None:
    await call_write(context, "empty", "")
    assert await call_read(context, "empty") == ""


async def test_an_input_is_read_by_its_name(context: ToolContext) -> None:
    assert await call_read(context, "inputs/data") == "input é"
    with pytest.raises(ToolError, match="there are: inputs/data"):
        await call_read(context, "inputs/other")


@pytest.mark.parametrize("path", ["inputs/data", "./inputs/x", "inputs"])
async def test_an_input_is_never_written_nor_hidden(context: ToolContext, path: str) -> None:
    with pytest.raises(ToolError, match="read-only"):
        await call_write(context, path, "x")
    assert await call_read(context, "inputs/data") == "input é"


async def test_a_long_file_is_cut_between_characters_and_can_be_read_on(context: ToolContext) -> None:
    text = "aé𝄞漢\n" * 1_000
    await call_write(context, "long", text)
    for size in (1, 2, 3, 4, 5, 1_001):
        parts: list[str] = []
        offset = 0
        while True:
            shown = await call_read(context, "long", offset, size) if size > 5 or offset < 100 else ""
            part, marker, rest = shown.partition("\n… (cut: ")
            parts.append(part)
            if not marker:
                break
            offset = int(rest.partition("offset=")[2].rstrip(")"))
        assert text.startswith("".join(parts))
        assert size <= 5 or "".join(parts) == text


async def test_an_offset_within_a_character_begins_with_the_next_one(context: ToolContext) -> None:
    await call_write(context, "x", "é漢z")
    assert [await call_read(context, "x", offset) for offset in range(7)] == ["é漢z", "漢z", "漢z", "z", "z", "z", ""]


async def test_bytes_that_are_no_text_are_refused_with_their_place(context: ToolContext) -> None:
    (context.folder() / "binary").write_bytes(b"ok\xff\xfe")
    with pytest.raises(ToolError, match="byte 2 is 0xff"):
        await call_read(context, "binary")


@pytest.mark.parametrize(("offset", "max_bytes"), [(-1, 10), (0, 0), (0, 10**6)])
async def test_amounts_have_bounds(context: ToolContext, offset: int, max_bytes: int) -> None:
    with pytest.raises(ToolError, match="max_bytes is 1 to"):
        await call_read(context, "x", offset, max_bytes)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../x", "climbs out"),
        ("/etc/passwd", "absolute"),
        ("nowhere.txt", "there is no file 'nowhere.txt'"),
        ("link", "symbolic link"),
        ("sub", "directory"),
    ],
)
async def test_what_cannot_be_read_is_said_without_a_path_of_the_machine(
    context: ToolContext, path: str, message: str
) -> None:
    (context.folder() / "link").symlink_to("/etc/passwd")
    (context.folder() / "sub").mkdir()
    with pytest.raises(ToolError) as caught:
        await call_read(context, path)
    assert message in str(caught.value)
    assert str(context.folder()) not in str(caught.value)
