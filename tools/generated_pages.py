"""The pages of the documentation that are made from code.

References are made for the site, and are in no commit. The table of roles is: it stands inside of a page
written by hand. `python3 dev.py docs` writes it, `--check` compares it. Both make every reference, which
fails if a part is missing, such as the note of an RPC.
"""

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


REFERENCES = tuple(
    GeneratedPage(module.PAGE, module.page)
    for module in (
        alert_reference,
        cli_reference,
        log_reference,
        rpc_reference,
        sdk_reference,
        settings_reference,
    )
)
WITH_A_TABLE = GeneratedPage(roles_table.PAGE, roles_table.page)


def main(arguments: list[str]) -> int:
    """Make every page. Write the table that differs from the code, or with --check only report it."""
    for page in REFERENCES:
        page.make()
    text = WITH_A_TABLE.make()
    if WITH_A_TABLE.is_in_step(text):
        print(f"{len(REFERENCES)} references can be made, and the table of roles matches the code")
    elif "--check" in arguments:
        print(f"{WITH_A_TABLE.name}: differs from the code. Run: python3 dev.py docs", file=sys.stderr)
        return 1
    else:
        WITH_A_TABLE.path.write_text(text, encoding="utf-8")
        print(f"wrote the table of roles in {WITH_A_TABLE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
