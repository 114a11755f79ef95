"""What may enter a store: ids, rows, heads, leases and queries, checked before anything is queued or bound.

Every store calls these first, so that all refuse the same arguments with the same words. A refusal is a `DataError` that names the argument and
the rule. Nothing here touches storage. The invariant: what passes can be stored by every store and read back unchanged.
"""

import re
from typing import cast

from checkrein.errors import DataError
from checkrein.ports.store import NewLease, Refusal, Row, RunHead, RunQuery
from checkrein.values import MAX_INTEGER

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_LABEL",
    "MAX_PROSE",
    "check_batch",
    "check_count",
    "check_epoch",
    "check_event_id",
    "check_head",
    "check_lease",
    "check_query",
    "check_refusal",
    "check_request_id",
    "check_run_id",
    "check_seconds",
]

MAX_RUN_ID = 128
"""Characters of a run's id: it names a folder as well."""
MAX_LABEL = 200
"""Characters of an event id, a request id, a type, a phase, a task's name or a lease's owner."""
MAX_PROSE = 1_000_000
"""Characters of a goal or of a refusal's detail."""
MAX_BODY_BYTES = 64 * 1024 * 1024
"""Bytes of one event: several values of the largest size a value may have."""
FINGERPRINT_BYTES = 32

_RUN_ID = re.compile(r"[A-Za-z0-9_-]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


def check_run_id(run_id: object) -> None:
    """Refuse what is no run id: 1 to 128 ASCII letters, digits, `-` and `_`.

    Raises:
        DataError: it is none.
    """
    if not isinstance(run_id, str) or len(run_id) > MAX_RUN_ID or not _RUN_ID.fullmatch(run_id):
        msg = f"run id {_shown(run_id)}: expected 1 to {MAX_RUN_ID} ASCII letters, digits, '-' and '_'"
        raise DataError(msg)


def check_request_id(request_id: object, *, is_optional: bool) -> None:
    """Refuse what is no request id: a label, or `""` for none where it is optional.

    Raises:
        DataError: it is none.
    """
    _label("request id", request_id, is_optional=is_optional)


def check_event_id(event_id: object) -> None:
    """Refuse what is no event id: a label.

    Raises:
        DataError: it is none.
    """
    _label("event id", event_id)


def check_count(name: str, value: object, *, least: int = 0) -> None:
    """Refuse what is no whole number from `least` to 2^53 - 1.

    Raises:
        DataError: it is none.
    """
    if type(value) is not int or not least <= value <= MAX_INTEGER:
        msg = f"{name} {_shown(value)}: expected a whole number from {least} to 2^53 - 1"
        raise DataError(msg)


def check_epoch(epoch: object) -> None:
    """Refuse what is neither an epoch nor None.

    Raises:
        DataError: it is neither.
    """
    if epoch is not None:
        check_count("epoch", epoch)


def check_seconds(name: str, seconds: object) -> None:
    """Refuse what is no finite number above 0.

    Raises:
        DataError: it is none.
    """
    _number(name, seconds)
    if cast("float", seconds) <= 0:
        msg = f"{name} {_shown(seconds)}: expected more than 0"
        raise DataError(msg)


def check_batch(rows: object, head: object) -> None:
    """Refuse a batch that is empty, holds an event id twice, or holds anything a store could not give back, and a head that is none.

    Raises:
        DataError: naming the first part that breaks a rule.
    """
    batch = cast("list[object] | tuple[object, ...]", rows) if isinstance(rows, list | tuple) else ()
    if not batch:
        msg = "batch: expected a list or tuple of at least one row"
        raise DataError(msg)
    if len({_check_row(row) for row in batch}) < len(batch):
        msg = "batch: an event id stands in it twice"
        raise DataError(msg)
    check_head(head)


def _check_row(row: object) -> str:
    """Return the row's event id."""
    if not isinstance(row, Row):
        msg = f"row {_shown(row)}: expected a Row"
        raise DataError(msg)
    _label("event id", row.event_id)
    _label("event type", row.type)
    _blob("fingerprint", row.fingerprint, least=FINGERPRINT_BYTES, most=FINGERPRINT_BYTES)
    _blob("event body", row.body, least=1, most=MAX_BODY_BYTES)
    return row.event_id


def check_head(head: object) -> None:
    """Refuse a head that a store could not give back.

    Raises:
        DataError: naming the first field that breaks a rule.
    """
    if not isinstance(head, RunHead):
        msg = f"head {_shown(head)}: expected a RunHead"
        raise DataError(msg)
    _label("phase", head.phase)
    _flag("is_terminal", head.is_terminal)
    _flag("is_claimable", head.is_claimable)
    _label("task", head.task, is_optional=True)
    check_count("task version", head.task_version)
    _prose("goal", head.goal)
    _number("updated_at", head.updated_at)


def check_lease(lease: object) -> None:
    """Refuse a claim without owner or duration.

    Raises:
        DataError: naming the first field that breaks a rule.
    """
    if not isinstance(lease, NewLease):
        msg = f"lease {_shown(lease)}: expected a NewLease"
        raise DataError(msg)
    _label("owner", lease.owner)
    check_seconds("lease seconds", lease.seconds)
    _label("dead owner", lease.dead_owner, is_optional=True)


def check_query(query: object) -> None:
    """Refuse a query whose filters or limit break a rule.

    Raises:
        DataError: naming the first field that does.
    """
    if not isinstance(query, RunQuery):
        msg = f"query {_shown(query)}: expected a RunQuery"
        raise DataError(msg)
    for name, labels in (("phases", query.phases), ("tasks", query.tasks)):
        _labels(name, labels)
    if query.prefix != "":
        check_run_id(query.prefix)
    _flag("claimable", query.claimable)
    check_count("limit", query.limit, least=1)


def check_refusal(refusal: object) -> None:
    """Refuse an entry of the audit that a store could not give back.

    Raises:
        DataError: naming the first field that breaks a rule.
    """
    if not isinstance(refusal, Refusal):
        msg = f"refusal {_shown(refusal)}: expected a Refusal"
        raise DataError(msg)
    _label("event id", refusal.event_id, is_optional=True)
    _label("event type", refusal.type)
    _label("code", refusal.code)
    _prose("detail", refusal.detail)
    _label("actor", refusal.actor, is_optional=True)
    _number("at", refusal.at)


def _labels(name: str, labels: object) -> None:
    if not isinstance(labels, tuple):
        msg = f"{name} {_shown(labels)}: expected a tuple of labels"
        raise DataError(msg)
    for label in cast("tuple[object, ...]", labels):
        _label(name, label)


def _label(name: str, value: object, *, is_optional: bool = False) -> None:
    """Refuse what is no text of 1 to 200 characters without NUL and lone surrogates; `""` passes where it is optional."""
    if (
        isinstance(value, str)
        and len(value) <= MAX_LABEL
        and (value or is_optional)
        and "\0" not in value
        and _encodes(value)
    ):
        return
    least = 0 if is_optional else 1
    msg = (
        f"{name} {_shown(value)}: expected a text of {least} to {MAX_LABEL} characters without NUL and lone surrogates"
    )
    raise DataError(msg)


def _prose(name: str, value: object) -> None:
    if not isinstance(value, str) or len(value) > MAX_PROSE or not _encodes(value):
        msg = f"{name} {_shown(value)}: expected a text of at most {MAX_PROSE:,} characters without lone surrogates"
        raise DataError(msg)


def _encodes(text: str) -> bool:
    return text.isascii() or not _SURROGATES.search(text)


def _blob(name: str, value: object, *, least: int, most: int) -> None:
    if not isinstance(value, bytes) or not least <= len(value) <= most:
        msg = f"{name} {_shown(value)}: expected {least} to {most:,} bytes"
        raise DataError(msg)


def _flag(name: str, value: object) -> None:
    if value is not True and value is not False:
        msg = f"{name} {_shown(value)}: expected True or False"
        raise DataError(msg)


def _number(name: str, value: object) -> None:
    """Refuse what is no number within ±(2^53 - 1); NaN compares false, infinities are too large."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER:
        return
    msg = f"{name} {_shown(value)}: expected a finite number within ±(2^53 - 1)"
    raise DataError(msg)


def _shown(value: object) -> str:
    """Return a value for a message, short and without asking a large or foreign object for its text."""
    if isinstance(value, str):
        return repr(value[:80])
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return "(a huge integer)"
    if value is None or isinstance(value, int | float):
        return repr(value)
    return f"({type(value).__name__})"
