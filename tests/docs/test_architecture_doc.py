"""The map shows the house as it stands."""

import re

from tests.docs.pages import ROOT

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_files_that_the_map_names_are_there() -> None:
    named = set(re.findall(r"`(pulse(?:_\w+)?/[\w/]+(?:\.\w+|/))`", ARCHITECTURE))
    assert named
    assert not [path for path in sorted(named) if not (ROOT / "src" / path).exists()]
