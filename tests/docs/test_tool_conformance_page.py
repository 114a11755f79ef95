"""docs/tool-conformance.md knows every test of the kit, every part of a case and every verdict."""

from typing import get_args

from checkrein.testing import ToolCase, ToolConformance
from checkrein.testing.tool_report import Verdict
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "tool-conformance.md").read_text(encoding="utf-8")
ROWS = [line.split("`")[1].rstrip("…") for line in PAGE.splitlines() if line.startswith("| `")]


def test_every_test_of_the_kit_has_its_row() -> None:
    tests = [name for name in vars(ToolConformance) if name.startswith("test_")]
    assert tests
    assert [name for name in tests if sum(name.startswith(row) for row in ROWS) != 1] == []


def test_every_part_of_a_case_has_its_row() -> None:
    assert [name for name in ToolCase.__struct_fields__ if name not in ROWS] == []


def test_every_verdict_is_explained() -> None:
    assert [verdict for verdict in get_args(Verdict) if f"| `{verdict}` |" not in PAGE] == []
