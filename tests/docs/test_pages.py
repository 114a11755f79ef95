"""What README.md, CONTRIBUTING.md and docs/ say is what happens: every block runs and prints what it claims."""

import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.console import Terminal, commands
from tests.docs.pages import REASON_CHARACTERS, ROOT, Block, blocks, blocks_in, pages

RUNNER = Path(__file__).with_name("run_block.py")
CONSOLE_PAGES = sorted({block.page for block in blocks_in("console")})
LANGUAGES = {"python", "console", "text", "toml", "mermaid", "json", "output", "sh"}
SECONDS = 100


@pytest.mark.parametrize("block", blocks_in("python"), ids=lambda block: block.place)
def test_a_python_block_runs_and_prints_what_is_documented(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(block.text, encoding="utf-8")
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", RUNNER, script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert block.output in (None, done.stdout)


@pytest.mark.parametrize("page", CONSOLE_PAGES)
def test_a_page_of_console_blocks_prints_what_is_documented(page: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    asked = [command for block in blocks_in("console") if block.page == page for command in commands(block)]
    assert asked
    for command in asked:
        assert terminal.code == 0 or command.text == "echo $?", "a failing command is followed by `$ echo $?`"
        terminal.compare(command, terminal.run(command))


def test_a_block_that_does_not_run_says_why() -> None:
    silent = [block.place for block in _all_blocks() if "not run" in block.options and _reason_is_short(block)]
    assert silent == []


def test_every_block_names_a_language_these_tests_know() -> None:
    unknown = [f"{block.place} {block.language!r}" for block in _all_blocks() if block.language not in LANGUAGES]
    assert unknown == []


def test_no_command_hides_in_a_block_that_is_not_run() -> None:
    hidden = [block.place for block in _all_blocks() if block.language in {"sh", "text"} and _has_command(block)]
    assert hidden == []


def test_generated_blocks_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_to_files_of_the_project_resolve() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in pages()
        for target in _targets(page)
        if not (page.parent / target.partition("#")[0]).exists()
    ]
    assert broken == []


def _all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


def _reason_is_short(block: Block) -> bool:
    return len(block.reason_not_to_run) < REASON_CHARACTERS


def _has_command(block: Block) -> bool:
    return any(line.startswith("$ ") for line in block.text.splitlines())


def _targets(page: Path) -> list[str]:
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    inline = [child for token in tokens for child in token.children or ()]
    links = [str(child.attrGet("href") or child.attrGet("src") or "") for child in inline]
    return [link for link in links if link and "://" not in link and not link.startswith(("#", "mailto:"))]
