"""The check `json_schema`: a schema decides, and nothing outside it is ever read."""

import json
from pathlib import Path

import pytest

from checkrein.errors import TaskError
from checkrein.values import JsonObject
from checkrein.verify import JsonSchemaCheck, make_check
from tests.unit.verify.measuring import measure, refused, write

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["total", "years"],
    "properties": {"total": {"type": "number"}, "years": {"type": "array", "items": {"$ref": "#/$defs/year"}}},
    "$defs": {"year": {"type": "object", "required": ["year"], "properties": {"year": {"type": "integer"}}}},
}
PATH = {"path": "summary.json"}


async def test_a_valid_file_passes_by_an_inline_schema_and_by_a_file_of_the_task(tmp_path: Path) -> None:
    write(tmp_path, "summary.json", '{"total": 2328.6, "years": [{"year": 2021}]}')
    write(tmp_path, "schemas/summary.json", json.dumps(SCHEMA))
    assert (await measure("json_schema", {**PATH, "schema": SCHEMA}, tmp_path)).passed
    assert (await measure("json_schema", {**PATH, "schema": "schemas/summary.json"}, tmp_path)).passed


async def test_every_fault_is_named_by_pointer(tmp_path: Path) -> None:
    write(tmp_path, "summary.json", '{"years": [{"year": "2021"}]}')
    measured = await measure("json_schema", {**PATH, "schema": SCHEMA}, tmp_path)
    assert measured.code == "not_valid"
    assert '/: "total" is a required property' in measured.text
    assert '/years/0/year: "2021" is not of type "integer"' in measured.text


@pytest.mark.parametrize(
    ("content", "code"),
    [("{", "not_json"), ('{"a": NaN}', "not_json"), (b"\xff", "not_text"), ("[" * 200 + "]" * 200, "not_json")],
)
async def test_what_is_no_json_fails_before_the_schema(content: str | bytes, code: str, tmp_path: Path) -> None:
    write(tmp_path, "summary.json", content)
    assert (await measure("json_schema", {**PATH, "schema": {}}, tmp_path)).code == code


async def test_an_endless_schema_is_a_finding_not_a_crash(tmp_path: Path) -> None:
    write(tmp_path, "summary.json", "{}")
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}
    measured = await measure("json_schema", {**PATH, "schema": schema}, tmp_path)
    assert measured.passed in {True, False}


async def test_a_pattern_cannot_take_exponential_time(tmp_path: Path) -> None:
    write(tmp_path, "summary.json", json.dumps("a" * 5_000 + "b"))
    assert (await measure("json_schema", {**PATH, "schema": {"pattern": "^(a+)+$"}}, tmp_path)).code == "not_valid"


async def test_ten_thousand_faults_are_cut_to_a_readable_list(tmp_path: Path) -> None:
    write(tmp_path, "summary.json", json.dumps(["x" * 1_000] * 10_000))
    measured = await measure("json_schema", {**PATH, "schema": {"items": {"type": "integer"}}}, tmp_path)
    assert measured.text.endswith("; and more") or "more characters" in measured.text
    assert len(measured.text) <= 2_100


@pytest.mark.parametrize(
    "reference", ["file:///etc/passwd", "http://127.0.0.1:9/schema.json", "https://example.com/schema", "other.json"]
)
def test_a_reference_to_anything_outside_is_refused_and_not_fetched(reference: str) -> None:
    error = refused("json_schema", {**PATH, "schema": {"$ref": reference}})
    assert error.key == "schema"
    assert "is no schema" in error.problem


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "is no schema"),
        ({"pattern": "("}, "is no schema"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "is written for"),
        ({"$schema": "file:///etc/passwd"}, "is written for"),
        ({"const": float("nan")}, "has no JSON form"),
        ("missing.json", "does not exist in the task's folder"),
        ("../outside.json", "`..`"),
        ("list.json", "is no JSON object"),
        ("broken.json", "is not JSON"),
        (3, "whole number"),
    ],
)
def test_a_schema_that_is_none_is_refused(schema: object, words: str, tmp_path: Path) -> None:
    write(tmp_path, "list.json", "[]")
    write(tmp_path, "broken.json", "{")
    error = refused("json_schema", {**PATH, "schema": schema}, tmp_path)
    assert error.key == "schema"
    assert words in error.problem


def test_a_schema_that_is_a_symlink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schema.json").symlink_to("/etc/hostname")
    with pytest.raises(TaskError, match="symlink"):
        make_check("json_schema", {**PATH, "schema": "schema.json"}, source="task.toml", base=tmp_path)


def test_a_schema_cannot_be_changed_after_the_check_was_made() -> None:
    schema: dict[str, object] = {"type": "object"}
    check = JsonSchemaCheck(path="summary.json", schema=schema)
    schema["type"] = "array"
    assert check.schema == JsonObject({"type": "object"})
