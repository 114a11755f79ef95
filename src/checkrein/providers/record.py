"""Records: what went over a wire, kept in a file, without secrets.

A record is a file of JSON lines. The first says which model was asked; then comes, for each request in order, its body, the events of the answer as they came, and how the
attempt ended. The lines of events are those of a golden stream, so a record and a golden stream are read by the same code. The invariant: headers of requests are never
written, and no line holds a key.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from checkrein.errors import ModelError, TaskError
from checkrein.ports.model import ModelRequest
from checkrein.providers.model import Body, WireModel
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.stops import Wire
from checkrein.providers.stream import WireEvent
from checkrein.values import JsonObject, clean_text

__all__ = [
    "Answer",
    "FileRecorder",
    "Record",
    "RecordEnd",
    "RecordHead",
    "RecordRequest",
    "public_url",
    "read_record",
    "without_secrets",
]

_VERSION: Final = 1
_HIDDEN: Final = "***"


class RecordHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which model was asked.

    Attributes:
        record: the version of this form.
        provider: the provider's name, as in `--model`.
        wire: what was spoken.
        model: the model's name there.
        base_url: where it was.
        priced_as: the name that prices go by.
        settings: of every request, those that are not the usual ones.
    """

    record: int
    provider: str
    wire: Wire
    model: str
    base_url: str = ""
    priced_as: str = ""
    settings: dict[str, object] = {}


class RecordRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request: its id, and the body that was posted."""

    request: str
    body: dict[str, object]


class RecordEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How an attempt ended.

    Attributes:
        end: `complete`, or the code of the error.
        message: the error's text.
        is_transient: asking again might have helped.
        retry_after: seconds for which the provider asked not to be asked again.
    """

    end: str
    message: str = ""
    is_transient: bool = False
    retry_after: float | None = None


class Answer(msgspec.Struct, frozen=True):
    """What one request brought.

    Attributes:
        request: the request; None in a golden stream, which holds an answer alone.
        events: the events, as they came.
        end: how it ended; None when the process that recorded it died before.
    """

    request: RecordRequest | None
    events: tuple[WireEvent, ...] = ()
    end: RecordEnd | None = None


class Record(msgspec.Struct, frozen=True):
    """A whole record; a golden stream is one without a head, of one answer."""

    head: RecordHead | None
    answers: Sequence[Answer]


class FileRecorder:
    """Writes a record, line by line, so that a process that dies loses at most the line it was writing.

    Args:
        file: where; it is made, for the eyes of its owner alone.
        provider: the provider's name, as in `--model`.
        secrets: what must not stand in it.
        goes_on: go on with a file that is there, as a run that is resumed does.

    Raises:
        TaskError: on creation, the file cannot be made, or is there already.
    """

    def __init__(self, file: Path, provider: str, *, secrets: Sequence[str] = (), goes_on: bool = False) -> None:
        self._provider = provider
        self._secrets = tuple(secret for secret in secrets if secret)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (0 if goes_on else os.O_EXCL)
        try:
            if goes_on:
                _cut_off(file)
            self._file = os.open(file, flags, 0o600)
        except FileExistsError as error:
            raise TaskError("--record", str(file), "is there already", "name a new file") from error
        except OSError as error:
            raise TaskError(
                "--record", str(file), f"cannot be written: {error.strerror}", "name another file"
            ) from error

    def of(self, model: WireModel) -> WireModel:
        """Write down which model is asked, and return it, recorded."""
        access = model.access
        head = RecordHead(
            _VERSION,
            self._provider,
            model.wire,
            model.name,
            public_url(access.base_url),
            access.provider,
            _changed(model.settings),
        )
        self._write(head)
        return model.recording(self)

    def begin(self, request: ModelRequest, body: Body) -> None:
        """Write a request down."""
        self._write(RecordRequest(request.id, dict(body)))

    def event(self, request_id: str, event: WireEvent) -> None:
        """Write the next event of its answer down."""
        del request_id
        self._write(event)

    def end(self, request_id: str, error: BaseException | None) -> None:
        """Write down how the attempt ended."""
        del request_id
        self._write(_ended(error))

    def _write(self, line: msgspec.Struct) -> None:
        text = msgspec.json.encode(line).decode()
        os.write(self._file, f"{without_secrets(text, self._secrets)}\n".encode())


def _cut_off(file: Path) -> None:
    """Take away a last line that its writer died in.

    Raises:
        OSError: the file cannot be read or written.
    """
    if not file.exists():
        return
    content = file.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        os.truncate(file, whole)


def public_url(url: str) -> str:
    """Return an address without the name and password that may stand in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """Return JSON text without secrets."""
    for secret in secrets:
        if secret:
            text = text.replace(json.dumps(secret)[1:-1], _HIDDEN)
    return text


def _changed(settings: ProviderSettings) -> dict[str, object]:
    """Return the settings that are not the usual ones, but for the address, which has its own place."""
    usual = ProviderSettings()
    found = {name: getattr(settings, name) for name in settings.__struct_fields__ if name != "base_url"}
    return {
        name: value.decoded() if isinstance(value, JsonObject) else value
        for name, value in found.items()
        if value != getattr(usual, name)
    }


def _ended(error: BaseException | None) -> RecordEnd:
    if error is None:
        return RecordEnd("complete")
    if isinstance(error, ModelError):
        return RecordEnd(error.code, error.message, error.is_transient, error.retry_after)
    return RecordEnd("not_read", clean_text(type(error).__name__))


def read_record(file: Path) -> Record:
    """Return a record, or a golden stream.

    Raises:
        TaskError: it cannot be read, or is neither; names the line.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is no text"
        raise TaskError(str(file), "", f"cannot be read: {problem}", "name a file that --record wrote") from error
    reading = _Reading(file)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            reading.take(number, _line(file, number, line, is_last=number == len(lines)))
    reading.settle()
    if not reading.answers:
        raise TaskError(str(file), "", "holds no answer of a model", "name a file that --record wrote")
    return Record(reading.head, reading.answers)


class _Reading:
    """A record that is being read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.head: RecordHead | None = None
        self.answers: list[Answer] = []
        self._events: list[WireEvent] = []

    def settle(self) -> None:
        """Give the last answer the events that were read."""
        if self.answers:
            self.answers[-1] = replace(self.answers[-1], events=tuple(self._events))
        self._events.clear()

    def take(self, number: int, line: RecordHead | RecordRequest | RecordEnd | WireEvent | None) -> None:
        """Take the next line; one that its writer died in says nothing.

        Raises:
            TaskError: another model is asked from there on.
        """
        match line:
            case RecordHead():
                self._take_head(number, line)
            case RecordRequest():
                self.settle()
                self.answers.append(Answer(line))
            case WireEvent():
                self._events.append(line)
                if not self.answers:
                    self.answers.append(Answer(None))
            case RecordEnd() if self.answers:
                self.answers[-1] = replace(self.answers[-1], end=line)
            case _:
                pass

    def _take_head(self, number: int, head: RecordHead) -> None:
        first = self.head or head
        if (head.provider, head.wire, head.model) != (first.provider, first.wire, first.model):
            raise TaskError(str(self._file), f"line {number}", "another model is asked from here on", "split the file")
        self.head = first


_KINDS: Final[Mapping[str, type[RecordHead | RecordRequest | RecordEnd | WireEvent]]] = {
    "record": RecordHead,
    "request": RecordRequest,
    "end": RecordEnd,
    "data": WireEvent,
}


def _line(
    file: Path, number: int, line: str, *, is_last: bool
) -> RecordHead | RecordRequest | RecordEnd | WireEvent | None:
    """Return what a line says; None for a last line that is cut off.

    Raises:
        TaskError: it says nothing known.
    """
    try:
        keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        kind = next((kind for key, kind in _KINDS.items() if key in keys), None)
        if kind is not None:
            return msgspec.json.decode(line, type=kind)
        problem = "is no line of a record"
    except (msgspec.DecodeError, RecursionError) as error:
        if is_last:
            return None
        problem = str(error)
    raise TaskError(str(file), f"line {number}", problem, "name a file that --record wrote")
