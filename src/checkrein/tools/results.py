"""What a body returned or raised, made fit to be recorded.

Everything a tool says passes here once: text is cleaned, values become canonical JSON, size is capped with a visible marker, artifact paths are
normal relative paths. The invariant: what leaves this module can be stored, and is within the limit, whatever the tool did.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import cast

from checkrein.errors import ChildRefused, FatalToolError, InvalidArguments, InvalidJson, ToolError, TransientToolError
from checkrein.messages import MAX_IMAGE_CHARACTERS, ContentBlock, Image, Text, clean_image
from checkrein.ports.tool import Accepted, ToolOutput
from checkrein.tools.outcomes import AcceptedJob, Done, FailedCall
from checkrein.values import JsonData, canonical_json, clean_text, shorten

__all__ = ["MAX_HANDLE_CHARACTERS", "MAX_MESSAGE_CHARACTERS", "cut_text", "describe_error", "failure", "finalise"]

MAX_MESSAGE_CHARACTERS = 4_000
MAX_HANDLE_CHARACTERS = 4_096
MAX_ARTIFACTS = 1_000
MAX_INTERVAL_SECONDS = 86_400

_EMPTY = {b"null", b'""', b"[]", b"{}"}
# A result larger than every limit must still be encoded once before it can be cut.
_UNLIMITED = 2**62
_MARKER_ROOM = 120
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def finalise(value: object, *, attempt: int, max_bytes: int) -> Done | AcceptedJob | FailedCall:
    """Return the outcome of a body that returned `value`.

    Args:
        value: what `Tool.call` returned: a `ToolOutput` or an `Accepted`.
        attempt: the number of the execution.
        max_bytes: the largest canonical JSON a result may have; a larger one becomes text that ends with a marker.
    """
    try:
        if isinstance(value, ToolOutput):
            return _done(value, max_bytes)
        if isinstance(value, Accepted):
            return _accepted(value)
    except ToolError as error:
        return FailedCall("internal", describe_error(error), attempts=attempt)
    return FailedCall("internal", f"the tool gave a {type(value).__name__}, no output", attempts=attempt)


def failure(error: BaseException, *, attempt: int) -> FailedCall:
    """Return the outcome of a body that raised `error`."""
    message = describe_error(error)
    if isinstance(error, InvalidArguments):
        return FailedCall("schema", message, attempts=attempt, issues=error.issues)
    if isinstance(error, ChildRefused) and error.code == "budget_exhausted":
        return FailedCall("budget_exceeded", message, attempts=attempt)
    if isinstance(error, (TransientToolError, ConnectionError, TimeoutError)):
        return FailedCall("transient", message, attempts=attempt, transient=True)
    return FailedCall("internal", message, attempts=attempt, fatal=isinstance(error, FatalToolError))


def describe_error(error: BaseException) -> str:
    """Return an error as safe text: a `ToolError` speaks for itself, any other is introduced by its type."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  an error whose text cannot be made must not hide that there was one
        text = ""
    if isinstance(error, asyncio.CancelledError):
        text = f"it was cancelled, but not by us{': ' + text if text else ''}"
    elif not isinstance(error, ToolError):
        text = f"{name}: {text}" if text else name
    return shorten(clean_text(text or name), MAX_MESSAGE_CHARACTERS)


def _accepted(value: Accepted) -> AcceptedJob:
    handle = cast("object", value.handle)
    if not isinstance(handle, str) or not 0 < len(handle) <= MAX_HANDLE_CHARACTERS:
        msg = f"a job's handle is a text of 1 to {MAX_HANDLE_CHARACTERS} characters, not {shorten(repr(handle), 80)}"
        raise ToolError(msg)
    interval = value.interval_seconds
    if not 0 < interval <= MAX_INTERVAL_SECONDS:
        msg = f"interval_seconds is more than 0 and at most {MAX_INTERVAL_SECONDS:,}, not {interval!r:.80}"
        raise ToolError(msg)
    return AcceptedJob(clean_text(handle), value.poll, interval)


def _done(output: ToolOutput, max_bytes: int) -> Done:
    try:
        encoded = canonical_json(output.value, max_bytes=_UNLIMITED)
    except InvalidJson as error:
        msg = f"the tool's result cannot be recorded as JSON: {error}"
        raise ToolError(msg) from error
    truncated = len(encoded) > max_bytes
    artifacts = _artifacts(output.artifacts) if output.artifacts else ()
    content, content_cut = _content(output.content, max_bytes) if output.content else ((), False)
    return Done(
        result=JsonData.from_canonical(_cut_to_json(output.value, encoded, max_bytes) if truncated else encoded),
        artifacts=artifacts,
        content=content,
        empty=encoded in _EMPTY and not artifacts and not content,
        truncated=truncated or content_cut,
    )


def _encoded(value: object) -> bytes:
    return canonical_json(value, max_bytes=_UNLIMITED)


def _cut_to_json(value: object, encoded: bytes, max_bytes: int) -> bytes:
    """Return canonical JSON of a text within `max_bytes`: the beginning of a text, or of a value's own JSON."""
    text = clean_text(value) if isinstance(value, str) else encoded.decode()
    room = max(0, max_bytes - _MARKER_ROOM)
    kept = _first_bytes(text, room)
    # Escapes make JSON longer than the text; shrinking in proportion gets there in a few rounds.
    while kept and len(shown := _encoded(kept)) > room:
        kept = kept[: min(len(kept) - 1, len(kept) * room // len(shown))]
    return _encoded(_marked(kept, text))


def _first_bytes(text: str, size: int) -> str:
    """Return the beginning of `text`, at most `size` bytes in UTF-8, cut between two characters."""
    return text[:size].encode()[:size].decode("utf-8", "ignore")


def _marked(kept: str, text: str) -> str:
    return f"{kept}… (cut: {len(kept):,} of {len(text):,} characters are shown)"


def cut_text(text: str, characters: int) -> str:
    """Return at most so many characters of `text`; a cut is marked."""
    return text if len(text) <= characters else _marked(text[:characters], text)


def _content(blocks: Sequence[ContentBlock], max_bytes: int) -> tuple[tuple[ContentBlock, ...], bool]:
    """Return the blocks of a tool's own content, cleaned, and whether something was cut.

    Texts are together within `max_bytes`; pictures have a room of their own, and one that does not fit is named instead.
    """
    made: list[ContentBlock] = []
    room, image_room, is_cut = max_bytes, MAX_IMAGE_CHARACTERS, False
    for block in blocks:
        if isinstance(block, Image):
            image_room -= len(block.data)
            is_cut = is_cut or image_room < 0
            made.append(_image(block) if image_room >= 0 else Text(f"({block.media_type:.40} left out: too large)"))
            continue
        if not isinstance(block, Text):
            msg = f"a tool's content is made of Text and Image blocks, not {type(block).__name__}"
            raise ToolError(msg)
        text = clean_text(block.text)
        kept = _first_bytes(text, room)
        is_cut = is_cut or len(kept) < len(text)
        room -= len(kept.encode())
        made.append(Text(kept if len(kept) == len(text) else _marked(kept, text)))
        if room <= 0:
            is_cut = is_cut or len(made) < len(blocks)
            break
    return tuple(made), is_cut


def _image(block: Image) -> Image:
    try:
        return clean_image(block)
    except TypeError as error:
        raise ToolError(str(error)) from error


def _artifacts(paths: object) -> tuple[str, ...]:
    if isinstance(paths, str) or not isinstance(paths, Sequence):
        msg = f"artifacts are a tuple of paths, not {type(paths).__name__}"
        raise ToolError(msg)
    named = tuple(dict.fromkeys(_artifact(path) for path in cast("Sequence[object]", paths)))
    if len(named) > MAX_ARTIFACTS:
        msg = f"{len(named):,} artifacts of one call, more than the {MAX_ARTIFACTS:,} allowed"
        raise ToolError(msg)
    return named


def _artifact(path: object) -> str:
    if not isinstance(path, str):
        msg = f"an artifact is named by its path as text, not by {type(path).__name__}"
        raise ToolError(msg)
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts or not parts or path.endswith("/") or _CONTROL.search(path):
        msg = f"artifact {shorten(repr(clean_text(path)), 200)} is no relative path of a file below the run's folder"
        raise ToolError(msg)
    return "/".join(parts)
