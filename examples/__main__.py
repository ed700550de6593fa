"""`python -m examples` lists the examples; `python -m examples worker` runs one of them."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def examples() -> dict[str, str]:
    """The name of each example, and the first line of its docstring."""
    scripts = {path.stem: path for path in HERE.glob("[!_]*.py")}
    programs = {path.parent.name: path for path in HERE.glob("*/__main__.py")}
    return {name: _first_line(path) for name, path in sorted((scripts | programs).items())}


def _first_line(path: Path) -> str:
    # Read, not imported: some need more than is installed.
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def main(arguments: list[str]) -> int:
    """Return 0, or 2 for a name that is no example."""
    known = examples()
    if not arguments or arguments[0] in ("-h", "--help"):
        print("Run one with: python -m examples NAME\n")
        for name, line in known.items():
            print(f"  {name:<14} {line}")
        return 0
    name = arguments[0].removesuffix(".py")
    if name not in known:
        print(f"There is no example {arguments[0]!r}; they are {', '.join(known)}.", file=sys.stderr)
        return 2
    sys.argv = [f"python -m examples {name}", *arguments[1:]]
    runpy.run_module(f"examples.{name}", run_name="__main__", alter_sys=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
