"""The Markdown pages of this repository, as the tests of the documentation read them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.generated_pages import REFERENCES

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
_NOT_OURS = frozenset({"build", "dist", "node_modules"})
_INLINE_CODE = re.compile(r"(`+)(.+?)\1", re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int

    @property
    def program(self) -> str:
        """The name of the file that the block is, by its first line; empty if it is a fragment."""
        found = re.match(r"# ([\w/]+\.py)\n", self.text)
        return found[1] if found and self.language == "python" else ""


@dataclass(frozen=True)
class Page:
    """One file."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """The page without its fenced blocks."""
        return _FENCE.sub("", self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        return [
            Block(
                found["language"].strip(),
                re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
                self.text.count("\n", 0, found.start()) + 2,
            )
            for found in _FENCE.finditer(self.text)
        ]

    @property
    def inline_code(self) -> list[str]:
        return [" ".join(found[2].split()) for found in _INLINE_CODE.finditer(self.prose)]

    @property
    def links(self) -> list[str]:
        """Where its links and pictures lead to."""
        return re.findall(r"\]\(([^)\s]+)\)", _INLINE_CODE.sub("", self.prose))

    @cached_property
    def anchors(self) -> set[str]:
        """What a link to this page may name behind the #, as GitHub makes it from the headings."""
        found: set[str] = set()
        for heading in re.findall(r"^#+ (.+?) *$", self.prose, re.MULTILINE):
            words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
            anchor = re.sub(r"[^\w -]", "", words.lower()).replace(" ", "-")
            repeats = (f"{anchor}-{number}" for number in range(1, 1000))
            found.add(anchor if anchor not in found else next(name for name in repeats if name not in found))
        return found


@dataclass(frozen=True)
class Reference(Page):
    """A page that is made from code, for the site. Its path is the one that pages link to."""

    make: Callable[[], str]

    @cached_property
    def text(self) -> str:
        return self.make()


def written_by_hand() -> Iterator[Page]:
    """Yield the pages of the repository, by name. What is hidden, built or installed is not a part of it."""
    for here, folders, files in os.walk(ROOT):
        folders[:] = sorted(
            name for name in folders if not name.startswith((".", "__")) and name not in _NOT_OURS
        )
        yield from (Page(Path(here, name)) for name in sorted(files) if name.endswith(".md"))


WRITTEN_BY_HAND = list(written_by_hand())
MADE_FROM_CODE = [Reference(page.path, page.make) for page in REFERENCES]
EVERY_PAGE = [*WRITTEN_BY_HAND, *MADE_FROM_CODE]
