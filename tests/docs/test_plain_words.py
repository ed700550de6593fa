"""Code and prose use the usual technical words.

Each bound is the number of hits that is left. It may only go down: lower it when you remove some.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT
from tests.rows import each_row

# Programs report, return, log or publish. Roles have names: the caller, a worker, an operator.
WORDS = re.compile(r"\b(?:tell|tells|telling|told|whoever|somebody|nobody)\b", re.IGNORECASE)
# As on the wire: canceled, prioritize. Names of Python, gRPC and the SDK keep their spelling.
BRITISH = re.compile(
    r"(?<![\w.`'\"])(?-i:cancelled|cancelling)(?![\w`'\"(])"
    r"|(?:prioritis|recognis|synchronis|serialis|initialis|normalis|organis|summaris|authoris|optimis"
    r"|minimis|maximis|customis|generalis|finalis|behaviour|neighbour|favour|colour|honour)"
    r"|\b(?:licences?|centre[sd]?|learnt|misspelt|judgements?|labelled|modelled|analys(?:e[sd]?|ing))\b",
    re.IGNORECASE,
)

# Things have technical names, not those of characters.
CHARACTERS = re.compile(r"overseer|doorkeeper|newsroom|parcel|(?<![a-z])stints?(?![a-z])", re.IGNORECASE)

LEFT_OUT = (
    Path(__file__),
    ROOT / "src" / "pulse" / "v1",
)
SUFFIXES = {".css", ".html", ".in", ".js", ".json", ".md", ".mjs", ".proto", ".py", ".sql", ".yaml", ".yml"}


def texts(part: str) -> Iterator[Path]:
    """Yield the files of a part of the repository, or the file that it names."""
    top = ROOT / part
    for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
        is_ours = not any(path.is_relative_to(folder) for folder in LEFT_OUT)
        if path.is_file() and path.suffix in SUFFIXES and is_ours:
            yield path


def hits(pattern: re.Pattern[str], part: str) -> Counter[str]:
    """Count the hits by file."""
    return Counter(
        {
            str(path.relative_to(ROOT)): len(found)
            for path in texts(part)
            if (found := pattern.findall(path.read_text(encoding="utf-8")))
        }
    )


PARTS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks",
    "deploy",
    "dev.py",
    "docs",
    "examples",
    "proto",
    "src",
    "tests",
    "tools",
]
# The account `nobody` of Unix stands in docs, src and tests. Applied migrations are not edited.
WORDS_LEFT = {"docs": 1, "src": 7, "tests": 2}


@each_row("part", PARTS)
def test_words_are_the_usual_ones(part: str) -> None:
    assert list(texts(part))
    found = hits(WORDS, part)
    assert found.total() <= WORDS_LEFT.get(part, 0), found.most_common(20)


@each_row("part", PARTS)
def test_spelling_is_american(part: str) -> None:
    found = hits(BRITISH, part)
    assert not found, found.most_common(20)


@each_row("part", ["examples", "proto", "src", "tests"])
def test_names_are_technical(part: str) -> None:
    assert not hits(CHARACTERS, part), hits(CHARACTERS, part).most_common(20)
