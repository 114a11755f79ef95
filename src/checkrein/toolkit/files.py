"""`read_file` and `write_file`: text files below the run's folder.

Both are idempotent. `read_file` also reads the task's inputs, as `inputs/<name>`; that folder name is reserved, so a file of the run never hides an
input, and nothing is ever written to an input.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager

from checkrein.errors import PathEscape, ToolError
from checkrein.ports.tool import ToolContext, ToolOutput
from checkrein.toolkit import paths
from checkrein.tools.function import tool
from checkrein.values import shorten

__all__ = ["INPUTS", "as_tool_error", "read_file", "write_file"]

INPUTS = "inputs"
MAX_READ_BYTES = 256 * 1024
_BORDER_BYTES = 3


@tool(idempotent=True, timeout_seconds=60)
def write_file(path: str, content: str, context: ToolContext) -> ToolOutput:
    """Write a whole text file in the run's folder, replacing one that is there.

    The file is the call's artifact. Folders on the way are made. After a crash there is the old file or the new one, never a part of it.

    Args:
        path: relative path below the run's folder, for example report.md or charts/note.txt.
        content: the whole text.
        context: the run's folder.

    Returns:
        The path and the number of bytes written.
    """
    encoded = content.encode()
    with as_tool_error(path):
        parts = paths.split_path(path)
        if parts[0] == INPUTS:
            msg = f"{path!r}: the folder {INPUTS}/ stands for the task's inputs, which are read-only; write somewhere else"
            raise ToolError(msg)
        paths.write_file(context.folder(), path, encoded)
    named = "/".join(parts)
    return ToolOutput({"path": named, "bytes": len(encoded)}, artifacts=(named,))


@tool(idempotent=True, timeout_seconds=60)
def read_file(path: str, context: ToolContext, offset: int = 0, max_bytes: int = 65_536) -> str:
    """Read a text file of the run's folder, or one of the task's inputs.

    A longer file is cut, and the text ends with a line that says how to go on.

    Args:
        path: relative path below the run's folder, or inputs/ and the name of an input.
        context: the run's folder and inputs.
        offset: first byte to read, from 0.
        max_bytes: how much to read at most, 1 to 262144 bytes.
    """
    if offset < 0 or not 0 < max_bytes <= MAX_READ_BYTES:
        msg = f"offset is 0 or more, max_bytes is 1 to {MAX_READ_BYTES}; got offset={offset}, max_bytes={max_bytes}"
        raise ToolError(msg)
    with as_tool_error(path), _opened(path, context) as opened:
        size = os.fstat(opened).st_size
        # A few bytes more than asked for, to see where the last character ends.
        data = os.pread(opened, max_bytes + _BORDER_BYTES, offset)
    text, begin, end = _text(data, offset, max_bytes, path)
    if end >= size:
        return text
    return f"{text}\n… (cut: bytes {begin} to {end} of {size} are shown; go on with offset={end})"


@contextmanager
def as_tool_error(path: str) -> Generator[None]:
    """Turn the errors of the file system into a `ToolError` that names the path as the caller gave it.

    Raises:
        ToolError: in place of an `OSError` or a `PathEscape`.
    """
    shown = shorten(path, 200)
    try:
        yield
    except PathEscape as error:
        raise ToolError(str(error)) from error
    except FileNotFoundError as error:
        msg = f"there is no file {shown!r} in the run's folder"
        raise ToolError(msg) from error
    except OSError as error:
        msg = f"{shown!r}: {error.strerror or error}"
        raise ToolError(msg) from error


@contextmanager
def _opened(path: str, context: ToolContext) -> Generator[int]:
    parts = paths.split_path(path)
    if parts[0] != INPUTS:
        with paths.open_file(context.folder(), path) as opened:
            yield opened
        return
    source = context.inputs.get("/".join(parts[1:]))
    if source is None:
        known = ", ".join(f"{INPUTS}/{name}" for name in sorted(context.inputs)) or "none"
        msg = f"there is no input {shorten(path, 200)!r}; there are: {known}"
        raise ToolError(msg)
    with source.open("rb") as file:
        yield file.fileno()


def _text(data: bytes, offset: int, limit: int, path: str) -> tuple[str, int, int]:
    """Return the whole characters within `data[:limit]`, and the offsets of their first byte and of the byte after the last.

    Raises:
        ToolError: the bytes are no UTF-8.
    """
    begin = 0
    while offset and begin < min(_BORDER_BYTES, len(data)) and _continues(data[begin]):
        begin += 1
    end = min(limit, len(data))
    while end > begin and end < len(data) and _continues(data[end]):
        end -= 1
    if end == begin and begin < len(data):
        # A single character that is larger than the limit: shown whole, or nobody could ever go on.
        end = begin + 1
        while end < len(data) and _continues(data[end]):
            end += 1
    try:
        return data[begin:end].decode(), offset + begin, offset + end
    except UnicodeDecodeError as error:
        msg = f"{shorten(path, 200)!r} is no UTF-8 text: byte {offset + begin + error.start} is {data[begin + error.start]:#04x}"
        raise ToolError(msg) from error


def _continues(byte: int) -> bool:
    """Say whether a byte is not the first one of its character in UTF-8."""
    return byte & 0xC0 == 0x80  # noqa: PLR2004  10xxxxxx, RFC 3629 §3
