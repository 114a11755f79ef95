"""Run the Python file named on the command line; `await` at its top level is allowed, as in a notebook."""

import ast
import asyncio
import inspect
import sys
from pathlib import Path
from types import FunctionType, ModuleType


def main(path: str) -> None:
    """Compile and run a block."""
    code = compile(Path(path).read_text(encoding="utf-8"), path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    # A namespace of its own: a block that forgot an import must not find ours.
    sys.modules["__main__"] = module = ModuleType("__main__")
    result = FunctionType(code, vars(module))()
    if inspect.iscoroutine(result):
        asyncio.run(result)


if __name__ == "__main__":
    main(sys.argv[1])
