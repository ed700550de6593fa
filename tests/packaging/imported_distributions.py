"""Which distributions the sources import, read off the syntax: an import that never runs counts too."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath

from tools.declared import normalized

OURS = {
    "pulse",
    "pulse_cli",
    "pulse_server",
    "pulse_text",
    "pulse_ui",
    "tests",
    "tools",
    "benchmarks",
    "examples",
    "faults",
}


@cache
def imported_distributions(directory: Path) -> dict[str, set[str]]:
    """Return the files below a directory that import each distribution.

    A module that is not installed stands for its distribution.
    """
    found: dict[str, set[str]] = {}
    for source in directory.rglob("*.py"):
        for module in third_party_modules(ast.parse(source.read_bytes())):
            found.setdefault(distribution_of(module), set()).add(source.name)
    return found


def third_party_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names that a module imports and neither the standard library nor pulse has."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from opentelemetry import trace` imports from a directory that several distributions share.
            names += (f"{node.module}.{alias.name}" for alias in node.names)
    for name in names:
        if (top := name.split(".")[0]) not in OURS and top not in sys.stdlib_module_names:
            yield name


def distribution_of(module: str) -> str:
    """Return the name of the distribution that has the module, or the object's module."""
    owners = module_owners()
    while module not in owners and "." in module:
        module = module.rpartition(".")[0]
    return owners.get(module, module)


@cache
def module_owners() -> dict[str, str]:
    """Return the distribution of each installed module, by the module's dotted name."""
    owners: dict[str, str] = {}
    for distribution in distributions():
        name = normalized(distribution.metadata["Name"])
        # Not `distribution.files`, which makes an object of each of 10,000 lines.
        for line in (distribution.read_text("RECORD") or "").splitlines():
            path = PurePosixPath(line.split(",")[0])
            if path.suffix in {".py", ".so"}:
                parts = (*path.parts[:-1], path.name.split(".")[0])
                owners.setdefault(".".join(part for part in parts if part != "__init__"), name)
    return owners
