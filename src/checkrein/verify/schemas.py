"""The check `json_schema`: a JSON artifact is valid by a schema (JSON Schema 2020-12) of the task.

No reference is ever fetched: a schema that names another file or address is refused when the check is made.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, NoReturn

import jsonschema_rs
import msgspec

from checkrein.errors import InvalidJson
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import JsonObject, parse_json, shorten
from checkrein.verify.artifacts import Unmet, finding, read_artifact, read_text
from checkrein.verify.base import ArtifactCheck, TaskFiles, refuse
from checkrein.verify.json_values import read_json

__all__ = ["JsonSchemaCheck"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_BYTES: Final = 1024 * 1024
MAX_LISTED: Final = 10


class JsonSchemaCheck(ArtifactCheck, frozen=True, kw_only=True):
    """A JSON artifact is valid by a schema.

    Attributes:
        schema: the schema; in a task file also the name of a file in the task's folder.
    """

    name: ClassVar[str] = "json_schema"
    revision: ClassVar[str] = "1"
    schema: Mapping[str, object]

    def validated(self) -> None:
        """Refuse a schema that is none, is of another dialect, or refers to anything outside itself.

        Raises:
            TaskError: it is.
        """
        try:
            schema = JsonObject(self.schema)
            dialect = schema.get("$schema", DIALECT)
            if str(dialect).rstrip("#") != DIALECT:
                refuse("schema", f"is written for {dialect!r}", f"write it for {DIALECT}")
            _compiled(schema)
        except InvalidJson as error:
            refuse("schema", f"has no JSON form: {error}", "correct it")
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            refuse(
                "schema",
                f"is no schema: {shorten(str(error).partition(chr(10))[0], 300)}",
                "correct it; references stay inside the schema (`#/$defs/…`)",
            )
        msgspec.structs.force_setattr(self, "schema", schema)

    def in_words(self) -> str:
        """Return the title."""
        return f"{self.path} is valid by its JSON Schema"

    @classmethod
    def prepared(cls, options: Mapping[str, object], task: TaskFiles) -> Mapping[str, object]:
        """Read the schema when it is named by file.

        Raises:
            TaskError: the file is missing, leads outside the task's folder, or is no JSON object.
        """
        name = options.get("schema")
        if not isinstance(name, str):
            return options
        fix = "name a JSON file in the task's folder, or write the schema itself"
        try:
            value = parse_json(read_text(task.read(name, limit=MAX_SCHEMA_BYTES), name))
        except Unmet as unmet:
            refuse("schema", unmet.measurement.text.replace("the run's folder", "the task's folder"), fix)
        except InvalidJson as error:
            refuse("schema", f"{name} is not JSON: {error}", fix)
        if not isinstance(value, dict):
            refuse("schema", f"{name} is no JSON object", fix)
        return {**options, "schema": value}

    def look(self, context: CheckContext) -> Measurement:
        """Read the artifact and list what the schema objects to."""
        value = read_json(read_artifact(context.folder, self.path), self.path)
        try:
            errors = [
                error
                for error, _ in zip(_compiled(self.schema).iter_errors(value), range(MAX_LISTED + 1), strict=False)
            ]
        except ValueError as error:
            raise Unmet("not_valid", f"{self.path} cannot be compared with its schema: {error}") from error
        if not errors:
            return Measurement(passed=True, text=f"{self.path} is valid by its schema")
        listed = [f"{_pointer(error)}: {shorten(error.message, 200)}" for error in errors[:MAX_LISTED]]
        more = "; and more" if len(errors) > MAX_LISTED else ""
        return finding(
            "not_valid", f"{self.path} is not valid by its schema: {'; '.join(listed)}{more}", {"errors": listed}
        )


def _deny(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside the schema and is not fetched")


def _compiled(schema: Mapping[str, object]) -> jsonschema_rs.Draft202012Validator:
    plain = schema.decoded() if isinstance(schema, JsonObject) else dict(schema)
    return jsonschema_rs.Draft202012Validator(plain, retriever=_deny, pattern_options=jsonschema_rs.RegexOptions())


def _pointer(error: jsonschema_rs.ValidationError) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.instance_path) or "/"
