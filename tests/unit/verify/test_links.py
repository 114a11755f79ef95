"""The check `links`: what a report shows and links to is in the run's folder; nothing is fetched and nothing outside is touched."""

from pathlib import Path

import pytest

from tests.unit.verify.measuring import measure, refused, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with files to link to."""
    (tmp_path / "outside.md").write_text("# Outside")
    folder = tmp_path / "run"
    write(folder, "charts/years.png", b"x")
    write(folder, "charts/a b.png", b"x")
    write(folder, "notes/detail.md", "# Detail\n\n## Sales (net)\n\ntext\n")
    (folder / "link.png").symlink_to("/etc/hostname")
    (folder / "door").symlink_to(tmp_path)
    return folder


async def _code(folder: Path, text: str, path: str = "report.md") -> str:
    write(folder, path, text)
    return (await measure("links", {"path": path}, folder)).code


@pytest.mark.parametrize(
    "text",
    [
        "no link at all",
        "![chart](charts/years.png)",
        "![chart](charts/a%20b.png) ![again](<charts/a b.png>)",
        "[![chart](charts/years.png)](charts/years.png#top)",
        "[detail](notes/detail.md) and [net](notes/detail.md#sales-net)",
        "# A title\n\n# A title\n\n[one](#a-title) [two](#a-title-1)",
        '<a id="here"></a>[here](#here) <a name="there"></a>[there](#there)',
        "[ref]\n\n[ref]: ./charts/years.png?raw=1 'title'",
        "[site](https://example.com/x.png) [mail](mailto:a@example.com) ![cdn](//example.com/y.png)",
        "`[code](nothing.md)`\n\n```\n[code](nothing.md)\n```",
        '<img src="charts/years.png">\n\n<p><a href="notes/detail.md">d</a></p>',
    ],
)
async def test_links_that_lead_somewhere_pass(text: str, folder: Path) -> None:
    assert await _code(folder, text) == ""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[x](nothing.md)", "broken_link"),
        ("![x](charts/)", "broken_link"),
        ("[x](charts)", "broken_link"),
        ("[x]()", "broken_link"),
        ("[x](a%00b.png)", "broken_link"),
        ("[![x](nothing.png)](charts/years.png)", "broken_link"),
        ('<img src="nothing.png">', "broken_link"),
        ("text <a href='nothing.md'>x</a>", "broken_link"),
        ("[x](#nowhere)", "broken_anchor"),
        ("[x](notes/detail.md#nowhere)", "broken_anchor"),
        ("[x](../outside.md)", "escapes"),
        ("[x](notes/../../outside.md)", "escapes"),
        ("[x](%2e%2e/outside.md)", "escapes"),
        ("[x](/etc/passwd)", "escapes"),
        ("[x](file:///etc/passwd)", "escapes"),
        ("[x](javascript:alert(1))", "escapes"),
        ("![x](data:image/png;base64,AAAA)", "escapes"),
        ("![x](link.png)", "escapes"),
        ("[x](door/outside.md)", "escapes"),
    ],
)
async def test_links_that_lead_nowhere_or_out_are_found(text: str, code: str, folder: Path) -> None:
    assert await _code(folder, text) == code


async def test_links_are_relative_to_the_report(folder: Path) -> None:
    assert await _code(folder, "![x](../charts/years.png) [y](detail.md)", "notes/report.md") == ""
    assert await _code(folder, "![x](charts/years.png)", "notes/report.md") == "broken_link"


async def test_a_finding_names_line_and_target_of_every_broken_link(folder: Path) -> None:
    write(folder, "report.md", "# R\n\n[x](nothing.md)\n\n![y](gone.png)\n")
    measured = await measure("links", {"path": "report.md"}, folder)
    assert "2 broken links: line 3: link 'nothing.md' does not resolve" in measured.text
    assert "line 5: image 'gone.png' does not resolve" in measured.text


async def test_other_hosts_are_counted_and_never_asked(folder: Path) -> None:
    write(folder, "report.md", "[a](http://127.0.0.1:9/) [b](https://example.invalid/) ![c](charts/years.png)")
    measured = await measure("links", {"path": "report.md"}, folder)
    assert measured.passed
    assert (measured.data["files"], measured.data["elsewhere"]) == (1, 2)


async def test_too_few_links_to_files_fail(folder: Path) -> None:
    write(folder, "report.md", "[a](https://example.com) [b](#r)\n\n# R\n\n![c](charts/years.png)")
    assert (await measure("links", {"path": "report.md", "min_links": 1}, folder)).passed
    assert (await measure("links", {"path": "report.md", "min_links": 2}, folder)).code == "too_few_links"


async def test_more_links_than_anybody_follows_are_refused(folder: Path) -> None:
    assert await _code(folder, "[x](a) " * 11_000) == "too_large"


def test_a_negative_number_of_links_is_refused() -> None:
    assert refused("links", {"path": "report.md", "min_links": -1}).key == "min_links"
