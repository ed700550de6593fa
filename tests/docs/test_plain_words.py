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

Spellings = dict[str, re.Pattern[str]]


def spellings(pattern: str, *stems: str, flags: re.RegexFlag = re.IGNORECASE) -> Spellings:
    """Return a pattern for each stem, which stands for {} in it.

    A file is searched for the stems that it contains: one expression of all takes twenty times as long.
    """
    return {stem.lower(): re.compile(pattern.replace("{}", stem), flags) for stem in stems}


# Programs report, return, log or publish. Roles have names: the caller, a worker, an operator.
WORDS = {
    **spellings(r"\b{}(?:s|ing)?\b", "tell"),
    **spellings(r"\b{}\b", "told", "whoever", "somebody", "nobody"),
}
# As on the wire: canceled, prioritize. Names of Python, gRPC and the SDK keep their spelling.
BRITISH = {
    **spellings("{}", "prioritis", "recognis", "synchronis", "serialis", "initialis", "normalis", "organis"),
    **spellings("{}", "summaris", "authoris", "optimis", "minimis", "maximis", "customis", "generalis"),
    **spellings("{}", "finalis", "behaviour", "neighbour", "favour", "colour", "honour"),
    **spellings(r"\b{}\b", "learnt", "misspelt", "labelled", "modelled"),
    **spellings(r"\b{}s?\b", "licence", "judgement"),
    **spellings(r"\b{}[sd]?\b", "centre"),
    **spellings(r"\b{}(?:e[sd]?|ing)\b", "analys"),
    **spellings(r"(?<![\w.`'\"]){}(?:ed|ing)(?![\w`'\"(])", "cancell", flags=re.NOFLAG),
}
# Things have technical names, not those of characters.
CHARACTERS = {
    **spellings("{}", "overseer", "doorkeeper", "newsroom", "parcel"),
    **spellings("(?<![a-z]){}s?(?![a-z])", "stint"),
}

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


def hits(searched: Spellings, part: str) -> Counter[str]:
    """Count the hits by file."""
    found = {
        str(path.relative_to(ROOT)): number
        for path in texts(part)
        if (number := count(searched, path.read_text(encoding="utf-8")))
    }
    return Counter(found)


def count(searched: Spellings, text: str) -> int:
    """Count the hits in a text."""
    lowered = text.lower()
    return sum(len(pattern.findall(text)) for stem, pattern in searched.items() if stem in lowered)


PARTS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks",
    "deploy",
    "dev.py",
    "docs",
    "examples",
    "faults",
    "proto",
    "src",
    "tests",
    "tools",
]
# The account `nobody` of Unix stands in docs, faults and src. Applied migrations are not edited.
WORDS_LEFT = {"docs": 1, "faults": 2, "src": 7}


@each_row("part", PARTS)
def test_words_are_the_usual_ones(part: str) -> None:
    assert list(texts(part))
    found = hits(WORDS, part)
    assert found.total() <= WORDS_LEFT.get(part, 0), found.most_common(20)


@each_row("part", PARTS)
def test_spelling_is_american(part: str) -> None:
    found = hits(BRITISH, part)
    assert not found, found.most_common(20)


@each_row("part", ["examples", "faults", "proto", "src", "tests"])
def test_names_are_technical(part: str) -> None:
    assert not hits(CHARACTERS, part), hits(CHARACTERS, part).most_common(20)


@each_row(
    "searched, text, number",
    [
        (WORDS, "He TOLD the worker; it tells nobody. Do not foretell.", 3),
        (BRITISH, "An Organisation was cancelled, analysed, and has licences.", 4),
        (BRITISH, "`cancelled`, analysis and future.cancelled() stay.", 0),
        (CHARACTERS, "The Overseer did two stints and stinted not.", 2),
    ],
)
def test_words_are_found(searched: Spellings, text: str, number: int) -> None:
    assert count(searched, text) == number
