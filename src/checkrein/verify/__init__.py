"""The shipped verifiers: what a task must prove is measured here, on the artifacts themselves, by something other than the model.

`KINDS` maps the kinds of a task file's `[[check]]` to their classes, `make_check` makes one from its options, `check` makes one of a function. Every verifier opens only
files strictly below the run's folder and the task's inputs, follows no symlink, bounds what it reads, and answers with a `Measurement`; it raises `VerifierFailed` only when
it could not look. Verifiers see neither the model nor the log.
"""

from typing import TYPE_CHECKING

from checkrein.ports.verifier import CheckContext, Measurement, Verifier
from checkrein.verify.base import ArtifactCheck, Check
from checkrein.verify.functions import FunctionVerifier, check, make_function_check
from checkrein.verify.kinds import HOMES, KINDS, load, make_check

if TYPE_CHECKING:
    from checkrein.verify.checksums import ChecksumCheck
    from checkrein.verify.commands import CommandCheck
    from checkrein.verify.files import FileCheck
    from checkrein.verify.images import ImageCheck
    from checkrein.verify.links import LinksCheck
    from checkrein.verify.queries import SqlCheck
    from checkrein.verify.schemas import JsonSchemaCheck
    from checkrein.verify.sums import SumCheck
    from checkrein.verify.tables import TableCheck

__all__ = [
    "KINDS",
    "ArtifactCheck",
    "Check",
    "CheckContext",
    "ChecksumCheck",
    "CommandCheck",
    "FileCheck",
    "FunctionVerifier",
    "ImageCheck",
    "JsonSchemaCheck",
    "LinksCheck",
    "Measurement",
    "SqlCheck",
    "SumCheck",
    "TableCheck",
    "Verifier",
    "check",
    "make_check",
    "make_function_check",
]


def __getattr__(name: str) -> type[Check]:
    """Load a kind's class when it is first used, with the libraries it needs."""
    for kind, (_, class_name) in HOMES.items():
        if class_name == name:
            return load(kind)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what can be imported, loaded or not."""
    return sorted(__all__)
