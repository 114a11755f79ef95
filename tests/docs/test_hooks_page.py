"""docs/hooks.md says of every topic what it is for, and of every power what comes of it."""

from checkrein.harness.hooks import POWERS, TOPICS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")


def test_the_page_says_what_each_topic_is_for_and_what_comes_of_its_powers() -> None:
    _, _, table = PAGE.partition("## What each topic is for")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:3] == "| `"]
    assert [row[0] for row in rows] == [f"`{topic}`" for topic in TOPICS]
    assert all(row[1] for row in rows)
    told = [(bool(row[2]), bool(row[3])) for row in rows]
    assert told == [(POWERS[topic].abort, POWERS[topic].skip) for topic in TOPICS]
