"""`import checkrein` is cheap and silent: it loads no library but msgspec, prints nothing, writes nothing."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import Module, functions, package_modules

# What a bare `import checkrein` may load besides itself and the standard library.
LOADED = {"msgspec"}
# What parsing a command line may load; everything else waits for the command that needs it.
LOADED_BY_CLI = LOADED | {
    "attr", "attrs", "cyclopts", "docstring_parser", "markdown_it", "mdurl", "pygments", "rich", "rich_rst", "typing_extensions",
}  # fmt: skip

# Runs in a fresh interpreter: records what an import loads and every event that changes the world outside.
PROBE = """
import json, sys
before = set(sys.modules)
deeds = []
def watch(event, arguments):
    if event == "open" and (set(arguments[1] or "") & set("wax+") or (arguments[2] or 0) & 0o103):
        deeds.append(f"open {arguments[0]!r} {arguments[1]!r}")
    elif event in {"os.mkdir", "os.remove", "os.rename", "os.putenv", "subprocess.Popen", "os.fork", "socket.connect"}:
        deeds.append(event)
sys.addaudithook(watch)
import MODULE
loaded = sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
sys.__stdout__.write(json.dumps({"deeds": deeds, "loaded": loaded}))
"""


def test_importing_prints_nothing_and_writes_nothing(tmp_path: Path) -> None:
    done = _python("import checkrein", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert _probe("checkrein", tmp_path)["deeds"] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("module", "allowed"), [("checkrein", LOADED), ("checkrein.cli.main", LOADED_BY_CLI)])
def test_importing_loads_only_the_libraries_named_here(module: str, allowed: set[str], tmp_path: Path) -> None:
    loaded = {name for name in _probe(module, tmp_path)["loaded"] if not name.startswith("_")}
    assert loaded - {"checkrein"} <= allowed


def test_functions_import_only_in_modules_named_here() -> None:
    found = {module.name for module in package_modules() if any(_inner_imports(module))}
    assert found <= set(INNER_IMPORTS)


def test_every_module_named_here_still_imports_in_a_function() -> None:
    found = {module.name for module in package_modules() if any(_inner_imports(module))}
    assert set(INNER_IMPORTS) <= found


# Modules whose functions may import, and what they put off.
INNER_IMPORTS: dict[str, str] = {
    "checkrein.cli.grammar": "the runtime, until a command is called",
    "checkrein.cli.main": "a command and what it needs, until it is called",
    "checkrein.cli.speaking": "a command and what it needs, until it is called",
    "checkrein.providers.anthropic.client": "the SDK of Anthropic, until a model is asked",
    "checkrein.providers.chat.client": "the SDK of OpenAI, until a model is asked",
    "checkrein.providers.catalogue": "the prices, until they are listed",
    "checkrein.providers.model": "the reader of event streams, until a model answers",
    "checkrein.providers.pricing": "the prices, until a response has its cost",
    "checkrein.providers.reach": "the transport, until a server is asked for its models",
    "checkrein.runs.task": "the reader of task files, until a task is read from a file",
    "checkrein.store": "a store and its database, until it is named",
    "checkrein.tools.function": "pydantic, until a tool's schema is looked at",
    "checkrein.tools.prepare": "jsonschema-rs, until a call is prepared",
    "checkrein.verify.documents": "the libraries of the extra `documents`, until such a file is read",
    "checkrein.verify.files": "a format's parser, until a file of that format is read",
}


def _inner_imports(module: Module) -> Iterator[ast.stmt]:
    for function in functions(module.tree):
        yield from (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))


def _probe(module: str, folder: Path) -> dict[str, list[str]]:
    done = _python(PROBE.replace("MODULE", module), folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-B", "-c", code], cwd=folder, capture_output=True, text=True, check=False)
