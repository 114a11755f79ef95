"""A disk that remembers: every write, sync, truncation and deletion that SQLite asks for, in order, with what callers were told in between.

From such a trace the file system after a power cut at any moment can be made, without running the program again: what was synced is there, and of what
was not, the disk may have kept anything: all, nothing, some of it, in another order, or torn.
"""

import random  # noqa: TID251  seeded, so that a cut can be made again
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import apsw

SECTOR_BYTES = 512


@dataclass(frozen=True)
class Write:
    """Bytes for a place in a file."""

    file: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    """A new, smaller size of a file."""

    file: str
    size: int


@dataclass(frozen=True)
class Sync:
    """All that was written to a file before is on the disk."""

    file: str


@dataclass(frozen=True)
class Delete:
    """A file's name is gone; whether the disk knows is uncertain."""

    file: str


@dataclass(frozen=True)
class Told:
    """A caller was told that its call succeeded."""

    what: object


Entry = Write | Truncate | Sync | Delete | Told


class Recorder(apsw.VFS):
    """The system's files, with every change written down in `trace`."""

    NAME = "recorder"

    def __init__(self) -> None:
        super().__init__(self.NAME, "unix", makedefault=True)
        self.trace: list[Entry] = []

    def remove(self) -> None:
        """Let files be opened without a record again, also through the layer of checksums that stands on this one."""
        for name in ("cksmvfs", self.NAME):
            apsw.unregister_vfs(name)
        apsw.set_default_vfs("unix")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "RecordedFile":  # noqa: N802  apsw's name
        return RecordedFile(self.trace, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802  apsw's signature
        super().xDelete(filename, syncdir)
        self.trace.append(Delete(Path(filename).name))


class RecordedFile(apsw.VFSFile):
    """A file whose changes are written down before they are made."""

    def __init__(self, trace: list[Entry], name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._trace = trace
        self._name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "").name

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._trace.append(Write(self._name, offset, bytes(data)))
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]  apsw's Buffer is unknown before Python 3.12

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._trace.append(Truncate(self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._trace.append(Sync(self._name))


@dataclass
class FileState:
    """What the disk surely has of a file, and what it may have.

    Attributes:
        durable: the synced content; None when the file may not exist.
        waiting: changes since the last sync.
        deleted: the content of a file of that name whose deletion the disk may have missed.
    """

    durable: bytes | None = None
    waiting: list[Write | Truncate] = field(default_factory=list[Write | Truncate])
    deleted: bytes | None = None


class Disk:
    """The state of the files while a trace goes by."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = {name: FileState(durable=content) for name, content in files.items()}

    def play(self, entry: Entry) -> None:
        """Let one entry happen."""
        if isinstance(entry, Told):
            return
        state = self.files.setdefault(entry.file, FileState())
        if isinstance(entry, Sync):
            # SQLite syncs the folder with the first sync of a new file, so that the older one is gone then.
            self.files[entry.file] = FileState(durable=bytes(_apply(state.durable or b"", state.waiting)))
        elif isinstance(entry, Delete):
            self.files[entry.file] = FileState(deleted=state.durable)
        else:
            state.waiting.append(entry)

    def after_cut(self, chance: random.Random) -> dict[str, bytes]:
        """Return what the disk may hold when the power goes now."""
        found: dict[str, bytes] = {}
        for name, state in self.files.items():
            if state.deleted is not None and chance.random() < 0.5:
                found[name] = state.deleted
            elif state.durable is not None or (state.waiting and chance.random() < 0.8):
                found[name] = bytes(_apply(state.durable or b"", _survivors(state.waiting, chance)))
        return found


def _apply(content: bytes, changes: Iterable[Write | Truncate]) -> bytearray:
    result = bytearray(content)
    for change in changes:
        if isinstance(change, Truncate):
            del result[change.size :]
            continue
        gap = change.offset - len(result)
        if gap > 0:
            result.extend(bytes(gap))
        result[change.offset : change.offset + len(change.data)] = change.data
    return result


def _survivors(waiting: list[Write | Truncate], chance: random.Random) -> list[Write | Truncate]:
    """Return what the disk kept of what nobody synced."""
    manner = chance.randrange(6)
    if not waiting or manner == 0:
        return []
    if manner == 1:
        return list(waiting)
    if manner == 2:
        kept = waiting[: chance.randint(0, len(waiting))]
        return [*kept[:-1], *(_torn(change, chance) for change in kept[-1:])]
    kept = [change for change in waiting if chance.random() < 0.6]
    if manner == 3:
        return kept
    chance.shuffle(kept)
    return [_torn(change, chance) if chance.random() < 0.3 else change for change in kept]


def _torn(change: Write | Truncate, chance: random.Random) -> Write | Truncate:
    """Return a write of which the disk kept a part: its beginning, its end, or some sectors, the others zero or left out."""
    if isinstance(change, Truncate) or len(change.data) < 2:
        return change
    cut = chance.randrange(1, len(change.data))
    manner = chance.randrange(4)
    if manner == 0:
        return Write(change.file, change.offset, change.data[:cut])
    if manner == 1:
        return Write(change.file, change.offset + cut, change.data[cut:])
    if manner == 2:
        return Write(change.file, change.offset, change.data[:cut] + bytes(len(change.data) - cut))
    sectors = [change.data[at : at + SECTOR_BYTES] for at in range(0, len(change.data), SECTOR_BYTES)]
    kept = (sector if chance.random() < 0.5 else bytes(len(sector)) for sector in sectors)
    return Write(change.file, change.offset, b"".join(kept))
