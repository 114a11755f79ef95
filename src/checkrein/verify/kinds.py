"""The kinds of checks by name, and how a task's options become one.

A kind's module, and the libraries it needs, are loaded when the kind is first asked for. The invariant: `make_check` returns a check that can measure, or raises a
`TaskError` that names file, key and fix.
"""

import difflib
import importlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

import msgspec
from msgspec.inspect import Field, StructType, Type, UnionType, type_info

from checkrein.errors import MissingExtra, TaskError
from checkrein.ports.verifier import Verifier
from checkrein.verify.base import Check, TaskFiles, type_in_words

__all__ = ["HOMES", "KINDS", "load", "make_check"]

HOMES: Final[Mapping[str, tuple[str, str]]] = {
    "checksum": ("checkrein.verify.checksums", "ChecksumCheck"),
    "command": ("checkrein.verify.commands", "CommandCheck"),
    "file": ("checkrein.verify.files", "FileCheck"),
    "image": ("checkrein.verify.images", "ImageCheck"),
    "json_schema": ("checkrein.verify.schemas", "JsonSchemaCheck"),
    "links": ("checkrein.verify.links", "LinksCheck"),
    "sql": ("checkrein.verify.queries", "SqlCheck"),
    "sum": ("checkrein.verify.sums", "SumCheck"),
    "table": ("checkrein.verify.tables", "TableCheck"),
}
"""Where each kind lives: module and class."""


def load(kind: str) -> type[Check]:
    """Return the class of a shipped kind.

    Raises:
        KeyError: there is no such kind.
    """
    module, name = HOMES[kind]
    return cast("type[Check]", getattr(importlib.import_module(module), name))


class _Kinds(Mapping[str, type[Check]]):
    """The shipped kinds; a class is loaded when it is asked for."""

    def __getitem__(self, kind: str) -> type[Check]:
        return load(kind)

    def __iter__(self) -> Iterator[str]:
        return iter(HOMES)

    def __len__(self) -> int:
        return len(HOMES)

    def __contains__(self, kind: object) -> bool:
        # Mapping's own would load the kind.
        return kind in HOMES


KINDS: Final[Mapping[str, type[Check]]] = _Kinds()
"""The shipped kinds by name; each value makes a check from its options as keywords."""


def make_check(
    kind: str,
    options: Mapping[str, object],
    *,
    source: str,
    base: Path | TaskFiles,
    inputs: Collection[str] | None = None,
    kinds: Mapping[str, type[Check]] = KINDS,
) -> Verifier:
    """Make a check from a task's options.

    Args:
        kind: the kind's name.
        options: the options as read from TOML, without `kind` and `id`.
        source: the file, for messages.
        base: the task's folder, or its files; those that options name, such as a schema, are among them.
        inputs: the names of the task's inputs; None when they are not known yet.
        kinds: the kinds there are; the shipped ones unless others are installed too.

    Raises:
        TaskError: there is no such kind; an option is unknown, missing or wrong; an input is not the task's. Keys are relative to the check's table.
        MissingExtra: the check needs an extra that is not installed.
    """
    if kind not in kinds:
        raise TaskError(
            source, "kind", f"there is no kind of check {kind!r}", _suggestion(kind, kinds, "the kinds are")
        )
    wanted = kinds[kind]
    try:
        _check_keys(options, cast("StructType", type_info(wanted)), "")
        files = TaskFiles(base) if isinstance(base, Path) else base
        made = msgspec.convert(dict(wanted.prepared(options, files)), wanted)
        _check_inputs(made, inputs)
    except msgspec.ValidationError as error:
        problem, key, fix = type_in_words(error)
        raise TaskError(source, key, problem, fix) from error
    except MissingExtra as error:
        raise MissingExtra(source, error.key, error.extra) from None
    except TaskError as error:
        raise TaskError(source, error.key, error.problem, error.fix) from None
    return made


def _check_keys(options: Mapping[str, object], struct: StructType, prefix: str) -> None:
    fields = {field.encode_name: field for field in struct.fields}
    for key, value in options.items():
        if key not in fields:
            raise TaskError("task", f"{prefix}{key}", "is no option here", _suggestion(key, fields, "the options are"))
        inner = _struct_in(fields[key].type)
        if inner is not None and isinstance(value, Mapping):
            _check_keys(cast("Mapping[str, object]", value), inner, f"{prefix}{key}.")
    for key, field in fields.items():
        if field.required and key not in options:
            raise TaskError("task", f"{prefix}{key}", "is missing", f"give `{key}`: {_first_line(struct, field)}")


def _struct_in(type_: Type) -> StructType | None:
    """Return the struct that a table for this option becomes, if one does."""
    candidates = type_.types if isinstance(type_, UnionType) else (type_,)
    return next((candidate for candidate in candidates if isinstance(candidate, StructType)), None)


def _first_line(struct: StructType, field: Field) -> str:
    """Return what the docstring says of an option."""
    for line in (struct.cls.__doc__ or "").splitlines():
        name, colon, words = line.strip().partition(": ")
        if colon and name == field.encode_name:
            return words.rstrip(".")
    return "it has no default"


def _check_inputs(made: Check, inputs: Collection[str] | None) -> None:
    for key, name in made.used_inputs():
        if inputs is not None and name not in inputs:
            raise TaskError("task", key, f"the task has no input {name!r}", _suggestion(name, inputs, "its inputs are"))


def _suggestion(word: str, known: Collection[str], introduction: str) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    listed = f"{introduction}: {', '.join(sorted(known)) or 'none'}"
    return f"did you mean {close[0]!r}? {listed}" if close else listed
