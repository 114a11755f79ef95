"""The project speaks of itself alone: no path of a machine, no registry's host, no stub, no skipped test."""

import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, files

# Each word is broken by brackets, or this file would find itself.
FORBIDDEN = {
    "a path of somebody's machine": r"(?<![\w.])/(?:w[o]rk|r[o]ot|h[o]me/\w+)/",
    "the host of a package registry": r"p[y]pi\.org|pytho[n]hosted|regi[s]try\.npm|d[e]b\.debian|cr[a]tes\.io",
    "how or by whom the text was made": r"(?i)cl[a]ude code|ch[a]tgpt|developer.?s? s[e]ssion|th[i]s s[e]ssion|ai[-]generated",
    "a place that users never see": r"\.\./sh[a]red|sh[a]red/(?:spec|design|style|stack|repo)|sp[e]c/\w+\.md",
    "unfinished work": r"\b(?:TO[D]O|FIX[M]E|XX[X])\b|NotImplemente[d]Error",
}
SOFT = r"pytest\.(?:ski[p]|mark\.ski[p]|mark\.xfai[l]|xfai[l])|assert Tru[e]\b|unittest\.moc[k]"


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    assert _found(FORBIDDEN[what], list(files())) == []


def test_no_test_is_skipped_soft_or_mocked() -> None:
    assert _found(SOFT, sorted((ROOT / "tests").rglob("*.py"))) == []


def test_locks_name_no_address() -> None:
    locks = sorted(ROOT.glob("*.lock"))
    assert len(locks) >= 3
    assert _found("://|--index|--find-links", [path for path in locks if path.name.startswith("requirements")]) == []


def _found(pattern: str, paths: list[Path]) -> list[str]:
    search = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in paths
        for number, line in enumerate(_lines(path), start=1)
        if search.search(line)
    ]


def _lines(path: Path) -> list[str]:
    content = path.read_bytes()
    return [] if b"\0" in content else content.decode("utf-8", errors="replace").splitlines()
