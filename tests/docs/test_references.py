"""What code and pages name of the documentation is there: decisions by number, pages, sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import EVERY_PAGE, ROOT

SUFFIXES = {".css", ".html", ".js", ".md", ".mjs", ".proto", ".py", ".sql", ".toml", ".yaml", ".yml"}

NOT_OURS = {"build", "dist", "shared"}
# The small repository of this test has pages of its own.
LEFT_OUT = {Path(__file__), Path(__file__).with_name("test_site.py")}

DECISION = re.compile(r"(?:ADR-|docs/adr/)(\d{4}(?:, \d{4})*)")
SECTION = re.compile(r"(?<![\w/])(docs/[\w/-]+\.md)(?:#([\w-]+))?")


def texts() -> Iterator[tuple[str, str]]:
    """Yield the files of the repository that may name a page, each with its text."""
    for top in sorted(ROOT.iterdir()):
        if top.name.startswith(".") or top.name in NOT_OURS:
            continue
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.suffix in SUFFIXES and path not in LEFT_OUT and path.is_file():
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_decisions_and_sections_that_are_named_exist() -> None:
    decisions = {path.name[:4] for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    anchors = {page.name: page.anchors for page in EVERY_PAGE}
    dangling = []
    for name, text in texts():
        for found in DECISION.finditer(text):
            dangling += [f"{name}: {found[0]}" for number in found[1].split(", ") if number not in decisions]
        if name.endswith(".md"):
            continue  # their links: test_doc_links
        for found in SECTION.finditer(text):
            page, anchor = found.groups()
            if page not in anchors or (anchor and anchor not in anchors[page]):
                dangling.append(f"{name}: {found[0]}")
    assert dangling == []


def test_index_lists_every_decision() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[\d{4}\]\(([\w.-]+)\)", index, re.MULTILINE)
    assert listed == sorted(path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
