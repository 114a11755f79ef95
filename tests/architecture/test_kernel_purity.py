"""The kernel imports what is listed here and nothing else, so it can do nothing but compute."""

import grimp

OURS = {"checkrein.errors", "checkrein.values", "checkrein.messages", "checkrein.kernel"}
# The standard library's parts without clock, randomness, files, threads or network.
PURE = {
    "__future__",
    "abc",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "math",
    "operator",
    "types",
    "typing",
}
LIBRARIES = {"msgspec", "typing_extensions"}


def test_the_kernel_imports_only_pure_modules() -> None:
    graph = grimp.build_graph("checkrein", include_external_packages=True, cache_dir=None)
    kernel = {"checkrein.kernel", *graph.find_descendants("checkrein.kernel")}
    imported = {(module, found) for module in kernel for found in graph.find_modules_directly_imported_by(module)}
    assert imported
    assert {edge for edge in imported if not _is_allowed(edge[1])} == set()


def _is_allowed(module: str) -> bool:
    if module.startswith("checkrein."):
        return ".".join(module.split(".")[:2]) in OURS
    return module in PURE | LIBRARIES
