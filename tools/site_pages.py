"""The source of the documentation's site: pages in the folders of the repository, so that their links hold.

References that are made from code have a place in these folders too, but are written to the site alone.
The index, docs/README.md, is the only list of pages. Its sections make the navigation and llms.txt.
"""

import os
import re
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tools import generated_pages
from tools.environment import ROOT

INDEX = Path("docs/README.md")
# Pages outside of docs/, with the heading that they have in the navigation.
_OUTSIDE = [
    Path("CHANGELOG.md"),
    Path("CONTRIBUTING.md"),
    Path("deploy/README.md"),
    Path("deploy/ha/README.md"),
]
_OUTSIDE_HEADING = "The repository"
# The pages that are made from code, each with the function that makes it.
REFERENCES = {Path(page.name): cache(page.make) for page in generated_pages.REFERENCES}

_LINK = re.compile(r"(?P<text>\[[^\]]*\])\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_CODE = re.compile(r"^(?P<fence> *```).*?^ *```$|(?P<ticks>`+)(?!`).+?(?P=ticks)", re.MULTILINE | re.DOTALL)
_FOREIGN = re.compile(r"[a-z]+:")


@dataclass(frozen=True)
class Entry:
    """How the index names a page, and describes it."""

    label: str
    description: str = ""


@dataclass
class Section:
    """A heading of the index with its pages, in the order of the index."""

    heading: str
    pages: dict[Path, Entry] = field(default_factory=dict)


def sections() -> list[Section]:
    """Return the sections of the index. A page that it does not list follows the pages of its folder."""
    found: list[Section] = []
    listed: set[Path] = {INDEX}
    for line in (ROOT / INDEX).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            found.append(Section(line.removeprefix("## ")))
        elif line.startswith("| ") and found:
            _, name, description, *_ = line.split("|")
            for page, label in _linked_pages(name).items():
                if page not in listed:
                    listed.add(page)
                    found[-1].pages[page] = Entry(label, description.strip())
    outside = Section(_OUTSIDE_HEADING, {page: Entry(title(page)) for page in _OUTSIDE if page not in listed})
    for page in pages():
        if page not in listed and page.parent != Path("docs/adr") and page.is_relative_to("docs"):
            _home_of(page, found).pages[page] = Entry(title(page))
    return [*found, outside]


def pages() -> list[Path]:
    """Return every page of the site but the first one, by path."""
    written = {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")}
    return [*sorted(written | REFERENCES.keys()), *_OUTSIDE]


def text_of(page: Path) -> str:
    """Return a page, made from the code if it is a reference."""
    make = REFERENCES.get(page)
    return make() if make else (ROOT / page).read_text(encoding="utf-8")


def title(page: Path) -> str:
    """Return the first heading of a page."""
    found = re.search(r"^# (.+)$", text_of(page), re.MULTILINE)
    return found[1].replace("`", "") if found else page.stem


def stage(directory: Path) -> None:
    """Write the source of the site: each page, and the files and folders that pages link to."""
    for page in [Path("README.md"), *pages()]:
        text = _with_staged_links(text_of(page), page, directory)
        _write(directory / renamed(page), text + _contents(page))


def renamed(page: Path) -> Path:
    """Return a page's name in the site. For a folder a forge shows README.md, a web server index.html."""
    return page.with_name("index.md") if page.name == "README.md" else page


def llms_txt() -> str:
    """Return the index for language models: every page as Markdown, with its description (llmstxt.org)."""
    summary = re.search(r"^\*\*(.+?)\*\*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    lines = ["# pulse", "", f"> {summary[1]}" if summary else ""]
    for section in sections():
        lines += ["", f"## {section.heading}", ""]
        for page, entry in section.pages.items():
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", entry.description)
            lines.append(f"- [{entry.label}]({renamed(page)}){f': {plain}' if plain else ''}")
    return "\n".join(lines) + "\n"


def _linked_pages(text: str) -> dict[Path, str]:
    """Return the pages that a text of the index links to, with the words of the link."""
    return {
        Path(os.path.normpath(INDEX.parent / found["target"])): found["text"][1:-1].replace("`", "")
        for found in _LINK.finditer(text)
        if found["target"].endswith(".md")
    }


def _home_of(page: Path, found: list[Section]) -> Section:
    """Return the section with the most pages of the same folder."""
    return max(found, key=lambda section: sum(other.parent == page.parent for other in section.pages))


def _contents(page: Path) -> str:
    """Return the hidden lists that make the navigation, for the two pages that have them."""
    if page == Path("README.md"):
        lists = [Section("", {INDEX: Entry(title(INDEX))}), *sections()]
        return "".join(map(_toctree, lists))
    if page == Path("docs/adr/README.md"):
        records = sorted(path.relative_to(ROOT) for path in (ROOT / page).parent.glob("[0-9]*.md"))
        return _toctree(Section("", {Path(path.name): Entry(title(path)) for path in records}))
    return ""


def _toctree(section: Section) -> str:
    lines = [f":caption: {section.heading}"] if section.heading else []
    pages = [f"{entry.label} <{renamed(page).with_suffix('')}>" for page, entry in section.pages.items()]
    return "\n".join(["\n```{toctree}", *lines, ":hidden:", "", *pages, "```\n"])


def _with_staged_links(text: str, page: Path, directory: Path) -> str:
    """Return the text with links to the names in the site. Stages the other files that it links to."""
    code = [found.span() for found in _CODE.finditer(text)]

    def replaced(found: re.Match[str]) -> str:
        target, anchor = found["target"], found["anchor"] or ""
        if _FOREIGN.match(target) or any(start <= found.start() < end for start, end in code):
            return found[0]
        path = Path(os.path.normpath(page.parent / target))
        if (ROOT / path).is_dir():
            _stage_folder(path, directory)
            target = f"{target.rstrip('/')}/index.md"
        elif path.suffix == ".md":
            target = str(renamed(Path(target)))
        else:
            _copy(path, directory)
        return f"{found['text']}({target}{anchor})"

    return _LINK.sub(replaced, text)


def _stage_folder(folder: Path, directory: Path) -> None:
    """Stage a page that lists the files of a folder."""
    files = [path for path in sorted((ROOT / folder).iterdir()) if path.is_file()]
    for path in files:
        _copy(path.relative_to(ROOT), directory)
    rows = [f"- [`{path.name}`]({path.name})" for path in files]
    _write(
        directory / folder / "index.md",
        "\n".join(["---", "orphan: true", "---", "", f"# {folder}", "", *rows, ""]),
    )


def _copy(path: Path, directory: Path) -> None:
    (directory / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / path, directory / path)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
