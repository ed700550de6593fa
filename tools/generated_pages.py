"""The pages of docs/ that are made from code: `python3 dev.py docs` writes them, `--check` compares."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tools import (
    alert_reference,
    cli_reference,
    log_reference,
    roles_table,
    rpc_reference,
    sdk_reference,
    settings_reference,
)
from tools.environment import ROOT


class GeneratedPage(NamedTuple):
    path: Path
    make: Callable[[], str]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    def is_in_step(self, text: str) -> bool:
        """Whether the existing page has exactly this text."""
        return self.path.exists() and self.path.read_text(encoding="utf-8") == text


PAGES = tuple(
    GeneratedPage(module.PAGE, module.page)
    for module in (
        alert_reference,
        cli_reference,
        log_reference,
        roles_table,
        rpc_reference,
        sdk_reference,
        settings_reference,
    )
)


def main(arguments: list[str]) -> int:
    """Write the pages that differ from the code, or with --check only report which do."""
    fresh = {page: page.make() for page in PAGES}
    stale = [page for page, text in fresh.items() if not page.is_in_step(text)]
    names = ", ".join(page.name for page in stale)
    if not stale:
        print(f"{len(PAGES)} generated pages match the code")
    elif "--check" in arguments:
        print(f"{names}: differs from the code. Run: python3 dev.py docs", file=sys.stderr)
        return 1
    else:
        for page in stale:
            page.path.write_text(fresh[page], encoding="utf-8")
        print(f"wrote {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
