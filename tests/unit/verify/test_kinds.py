"""Making checks from a task's options: a bad one is refused with file, key and fix, and a kind is loaded only when it is asked for."""

import json
import subprocess
import sys
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

import checkrein.verify
from checkrein.errors import MissingExtra, TaskError
from checkrein.ports.verifier import CheckContext, Measurement, Verifier
from checkrein.verify import KINDS, ArtifactCheck, Check, FileCheck, SumCheck, TableCheck, make_check
from checkrein.verify.kinds import HOMES
from checkrein.verify.sources import Amounts
from checkrein.verify.sums import Reported
from tests.unit.verify.measuring import ROOT, context, refused, write


def test_every_kind_is_a_frozen_struct_that_names_itself() -> None:
    assert set(KINDS) == set(HOMES)
    for kind, made in KINDS.items():
        assert (made.name, made.revision) == (kind, "1")
        assert issubclass(made, Check)
        assert made.__struct_config__.frozen
        assert made.__struct_config__.forbid_unknown_fields


def test_every_kind_is_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["checkrein.checks"] == {
        kind: f"{module}:{name}" for kind, (module, name) in HOMES.items()
    }


def test_every_kinds_class_can_be_imported_from_the_room() -> None:
    for kind, (_, name) in HOMES.items():
        assert getattr(checkrein.verify, name) is KINDS[kind]
        assert name in dir(checkrein.verify)
    with pytest.raises(AttributeError, match="NoSuchCheck"):
        getattr(checkrein.verify, "NoSuchCheck")  # noqa: B009  the attribute must not be known to a type checker


def test_a_kinds_library_is_loaded_only_when_the_kind_is_used() -> None:
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from checkrein.verify import KINDS, make_check\n"
        "assert 'image' in KINDS and len(list(KINDS)) == len(KINDS)\n"
        "libraries = {'PIL', 'markdown_it', 'jsonschema_rs', 'apsw', 'pypdf', 'openpyxl', 'defusedxml'}\n"
        "before = sorted(libraries & set(sys.modules))\n"
        "make_check('file', {'path': 'a.json', 'format': 'json'}, source='t', base=Path())\n"
        "between = sorted(libraries & set(sys.modules))\n"
        "make_check('image', {'path': 'a.png'}, source='t', base=Path())\n"
        "print(json.dumps([before, between, sorted(libraries & set(sys.modules))]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], [], ["PIL"]]


@pytest.mark.parametrize(
    ("kind", "options", "key", "words"),
    [
        ("fiel", {}, "kind", "did you mean 'file'? the kinds are: checksum, command, file"),
        ("pickle", {}, "kind", "the kinds are"),
        ("file", {"path": "a", "section": ["A"]}, "section", "did you mean 'sections'? the options are"),
        ("file", {"path": "a", "kind": "file"}, "kind", "is no option here"),
        ("file", {}, "path", "give `path`"),
        ("file", {"path": 3}, "path", "is a whole number; give text"),
        ("file", {"path": "a", "format": "markdown", "sections": ["A", 3]}, "sections[1]", "give text"),
        ("file", {"path": "a", "format": "markdown", "sections": "A"}, "sections", "is text; give a list"),
        ("file", {"path": "a", "min_bytes": True}, "min_bytes", "is true or false; give a whole number"),
        ("file", {"path": "a", "min_bytes": "1"}, "min_bytes", "is text; give a whole number"),
        ("file", {"path": "/etc/passwd"}, "path", "is absolute; give a path relative to the run's folder"),
        ("sum", {"source": {"input": "a"}, "reported": {}}, "source.column", "give `column`: the column of amounts"),
        ("sum", {"source": {"inptu": "a", "column": "b"}, "reported": {}}, "source.inptu", "did you mean 'input'?"),
        ("sum", {"source": 3, "reported": {}}, "reported.path", "is missing"),
        ("sum", {"source": 3, "reported": {"path": "a", "after": "b"}}, "source", "give a table"),
        ("table", {"path": "a", "rows": {"distict": "x"}}, "rows.distict", "did you mean 'distinct'?"),
        ("table", {"path": "a", "rows": "x"}, "rows", "give a whole number or a table"),
        (
            "table",
            {"path": "a", "total": {"column": "b", "source": {"input": "c", "column": 1}}},
            "total.source.column",
            "give text",
        ),
    ],
)
def test_a_bad_option_is_refused_with_file_key_and_fix(
    kind: str, options: dict[str, object], key: str, words: str
) -> None:
    error = refused(kind, options)
    assert (error.source, error.key) == ("task.toml", key)
    assert words in str(error)
    assert str(error).startswith(f"task.toml: {key}: ")


@pytest.mark.parametrize(
    ("kind", "options", "key"),
    [
        (
            "sum",
            {"source": {"input": "invoice", "column": "a"}, "reported": {"path": "a", "after": "b"}},
            "source.input",
        ),
        ("table", {"path": "a", "rows": {"input": "invoice"}}, "rows.input"),
        (
            "table",
            {"path": "a", "total": {"column": "x", "source": {"input": "invoice", "column": "y"}}},
            "total.source.input",
        ),
        (
            "table",
            {"path": "a", "groups": {"key": "x", "column": "y", "source": {"input": "invoice", "by": "z"}}},
            "groups.source.input",
        ),
        ("command", {"argv": ["true", "{input:invoice}"]}, "argv"),
    ],
)
def test_an_input_that_the_task_does_not_have_is_refused(kind: str, options: dict[str, object], key: str) -> None:
    make_check(kind, options, source="task.toml", base=ROOT)
    with pytest.raises(TaskError, match="did you mean 'invoices'") as caught:
        make_check(kind, options, source="task.toml", base=ROOT, inputs=("invoices", "lines"))
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("format_", "library"), [("pdf", "pypdf"), ("xlsx", "openpyxl"), ("xlsx", "defusedxml"), ("xml", "defusedxml")]
)
def test_a_format_whose_extra_is_not_installed_is_refused_with_the_command_that_installs_it(
    format_: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    error = refused("file", {"path": "report", "format": format_})
    assert isinstance(error, MissingExtra)
    assert (error.source, error.key, error.extra) == ("task.toml", "format", "documents")
    assert "pip install 'checkrein[documents]'" in str(error)


def test_a_check_made_in_code_is_held_to_the_same_rules() -> None:
    made = SumCheck(
        source=Amounts(input="invoices", column="total"),
        reported=Reported(path="report.md", after="Total sales"),
        tolerance=0.005,  # pyright: ignore[reportArgumentType]  as in a task file
    )
    assert made.tolerance == Decimal("0.005")
    assert made == make_check(
        "sum",
        {
            "source": {"input": "invoices", "column": "total"},
            "reported": {"path": "report.md", "after": "Total sales"},
            "tolerance": 0.005,
        },
        source="task.toml",
        base=ROOT,
    )
    for key, wrong in (("path", 3), ("path", ".."), ("rows", "x"), ("columns", "x")):
        with pytest.raises(TaskError) as caught:
            TableCheck(**{"path": "report.md", key: wrong})  # pyright: ignore[reportArgumentType]  wrong on purpose
        assert (caught.value.source, caught.value.key) == ("task", key)
    with pytest.raises(TypeError):
        FileCheck(path="report.md", sections_=())  # pyright: ignore[reportCallIssue]  wrong on purpose


def test_options_cannot_be_changed_after_they_were_checked() -> None:
    made = FileCheck(path="report.md", format="markdown", sections=["A"])  # pyright: ignore[reportArgumentType]  as from a file
    assert made.sections == ("A",)
    with pytest.raises(AttributeError):
        made.path = "/etc/passwd"  # pyright: ignore[reportAttributeAccessIssue]  refused at run time too


def test_a_title_is_a_sentence_about_the_subject_unless_one_is_given() -> None:
    assert (
        FileCheck(path="report.md", format="markdown", sections=("A", "B")).title
        == "report.md is Markdown with its 2 sections"
    )
    assert FileCheck(path="report.md", title="the report is there").title == "the report is there"
    assert make_check("command", {"argv": ["true"]}, source="t", base=ROOT).subject == ""


@pytest.mark.parametrize("kind", sorted(HOMES))
def test_every_kind_is_a_verifier_with_a_title_and_a_version(kind: str) -> None:
    options: dict[str, dict[str, object]] = {
        "checksum": {"sha256": "0" * 64},
        "command": {"argv": ["true"]},
        "json_schema": {"schema": {}},
        "sql": {"query": "select 1"},
        "sum": {"source": {"input": "a", "column": "b"}, "reported": {"path": "report.csv", "after": "x"}},
    }
    own = {} if kind == "sum" else {"path": "report.csv"}
    made: Verifier = make_check(kind, {**own, **options.get(kind, {})}, source="t", base=ROOT)
    assert (made.kind, made.version, made.subject) == (kind, "1", "report.csv")
    assert made.title


class LinesCheck(ArtifactCheck, frozen=True, kw_only=True):
    """A text has enough lines.

    Attributes:
        least: how many lines it must have.
    """

    name: ClassVar[str] = "lines"
    revision: ClassVar[str] = "1"
    least: int

    def look(self, context: CheckContext) -> Measurement:
        found = len((context.folder / self.path).read_text(encoding="utf-8").splitlines())
        return Measurement(passed=found >= self.least, text=f"{self.path} has {found} lines, at least {self.least}")


async def test_another_kind_is_made_and_refused_like_the_shipped_ones(tmp_path: Path) -> None:
    write(tmp_path, "report.md", "a\nb\n")
    kinds = {**KINDS, "lines": LinesCheck}
    made = make_check("lines", {"path": "report.md", "least": 2}, source="t", base=tmp_path, kinds=kinds)
    assert (await made.measure(context(tmp_path))).passed
    with pytest.raises(TaskError, match="least: is missing; give `least`: how many lines it must have"):
        make_check("lines", {"path": "report.md"}, source="t", base=tmp_path, kinds=kinds)


def test_a_replaced_check_is_checked_again() -> None:
    made = make_check("json_schema", {"path": "a.json", "schema": {"type": "object"}}, source="t", base=ROOT)
    assert isinstance(made, Check)
    with pytest.raises(TaskError):
        msgspec.structs.replace(made, path="..")
    assert msgspec.structs.replace(made, path="b.json").subject == "b.json"
