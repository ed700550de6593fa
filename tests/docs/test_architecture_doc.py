"""The map shows the house as it stands."""

import re

from tests.docs.pages import ROOT

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_files_that_the_map_names_are_there() -> None:
    named = set(re.findall(r"`(pulse(?:_\w+)?/[\w/]+(?:\.\w+|/))`", ARCHITECTURE))
    assert named
    assert not [path for path in sorted(named) if not (ROOT / "src" / path).exists()]


def test_names_of_files_are_those_of_the_map() -> None:
    table = ARCHITECTURE.partition("## Names of files")[2].partition("\n## ")[0]
    _, _, *lines = [
        line for line in table.partition("\n\nIn the SDK")[0].splitlines() if line.startswith("|")
    ]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    nouns = [row[0].split()[0] for row in rows]
    places = [ROOT / "src" / package for package in ("pulse", "pulse_server", "pulse_cli", "pulse_ui")]
    assert nouns
    missing = [
        noun
        for noun in nouns
        if not any((place / noun).is_dir() or (place / f"{noun}.py").exists() for place in places)
    ]
    assert missing == []


def test_every_loop_of_the_server_is_in_the_table() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "src" / "pulse_server").rglob("*.py"))
    made = {name.replace("_", " ") for text in sources for name in re.findall(r'\bLoop\("([\w ]+)"', text)}
    table = ARCHITECTURE.partition("## The loops")[2].partition("In each worker:")[0]
    # The hub and the wake-up line have their own way to wait.
    assert {*re.findall(r"^\| ([\w -]+) \(`", table, re.MULTILINE)} == made | {"hub", "wake-up line"}
