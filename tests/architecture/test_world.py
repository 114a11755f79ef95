"""Time, ids, randomness and new tasks come from `clock.py` alone, so a test can hold every one of them in its hand."""

import ast
from collections.abc import Iterator

from tests.architecture.tree import Module, dotted, imports, package_modules

HOME = "checkrein.clock"
# Called on anything: a loop, a module, a group.
METHODS = {"create_task", "ensure_future", "TaskGroup", "utcnow"}
# The Clock port has these too, so they are wrong on a loop only.
LOOP_METHODS = {"call_later", "call_at", "time"}
FUNCTIONS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.sleep",
    "datetime.now",
    "datetime.today",
    "date.today",
    "asyncio.sleep",
    "asyncio.timeout",
    "asyncio.wait_for",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
}
MODULES = {"random", "secrets"}


def test_only_the_clock_touches_time_ids_randomness_and_tasks() -> None:
    found = [use for module in package_modules() if module.name != HOME for use in _uses(module)]
    assert found == []


def test_the_search_sees_every_spelling() -> None:
    spellings = (
        "import random",
        "from random import choice",
        "from time import time",
        "import time\ntime.monotonic()",
        "from asyncio import TaskGroup",
        "loop.create_task(x)",
        "asyncio.get_running_loop().create_task(x)",
        "asyncio.get_running_loop().call_later(1, x)",
        "self._loop.time()",
        "from uuid import uuid4",
        "datetime.datetime.now()",
        "await asyncio.sleep(0.01)",
    )
    blind = [text for text in spellings if not list(_marks(ast.parse(text)))]
    assert blind == []


def _uses(module: Module) -> Iterator[str]:
    return (f"{module.at(node)} {name}" for node, name in _marks(module.tree))


def _marks(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node, name in imports(tree):
        if name.partition(".")[0] in MODULES or name in FUNCTIONS or name.rpartition(".")[2] in METHODS:
            yield node, name
    handovers = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_handover(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in handovers:
            tail = ".".join(dotted(node).split(".")[-2:])
            on_loop = node.attr in LOOP_METHODS and "loop" in ast.unparse(node.value)
            if node.attr in METHODS or on_loop or tail in FUNCTIONS:
                yield node, ast.unparse(node)


def _is_handover(call: ast.Call) -> bool:
    # `asyncio.sleep(0)` waits for no time: it lets the other tasks have their turn.
    return ast.unparse(call) == "asyncio.sleep(0)"
