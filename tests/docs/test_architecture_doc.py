"""The map shows the house as it stands."""

import re
import tomllib

from tests.docs.pages import ROOT

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
    "contracts"
]


def layers_of(package: str) -> list[set[str]]:
    """Return the rooms of the package, a set for each line of its contract, from the top."""
    (layers,) = (one["layers"] for one in CONTRACTS if one.get("containers") == [package])
    return [set(re.findall(r"\w+", layer)) for layer in layers]


def rows_of(package: str) -> list[list[str]]:
    """Return the rooms that the table of the package names, row by row."""
    table = next(part for part in ARCHITECTURE.split("\n\n") if re.match(rf"\| room of .*`{package}`", part))
    return [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:]]


def test_files_that_the_map_names_are_there() -> None:
    named = set(re.findall(r"`(pulse(?:_\w+)?/[\w/]+(?:\.\w+|/))`", ARCHITECTURE))
    assert named
    assert not [path for path in sorted(named) if not (ROOT / "src" / path).exists()]


def test_rooms_of_the_server_are_those_of_the_contract_from_the_top() -> None:
    layers = layers_of("pulse_server")
    place = {room: number for number, layer in enumerate(layers) for room in layer}
    named = [room for row in rows_of("pulse_server") for room in row]
    assert sorted(named) == sorted(place)
    assert [place[room] for room in named] == sorted(place.values())


def test_rooms_of_the_other_packages_are_in_their_table() -> None:
    assert {room for row in rows_of("pulse") for room in row} == set().union(*layers_of("pulse"))
    both = set().union(*layers_of("pulse_cli"), *layers_of("pulse_ui"))
    assert {room for row in rows_of("pulse_cli") for room in row} == both


def test_every_loop_of_the_server_is_in_the_table() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "src" / "pulse_server").rglob("*.py"))
    made = {name.replace("_", " ") for text in sources for name in re.findall(r'\bLoop\("([\w ]+)"', text)}
    table = ARCHITECTURE.partition("## The loops")[2].partition("In each worker:")[0]
    # The hub and the wake-up line have their own way to wait.
    assert {*re.findall(r"^\| ([\w -]+) \(`", table, re.MULTILINE)} == made | {"hub", "wake-up line"}
