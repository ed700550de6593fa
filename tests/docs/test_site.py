"""The site of docs/: it builds without warnings, no link is dead, and each page is there as Markdown."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="the environment with the oldest versions does not build the site")

from tools import site, site_pages

# MyST-Parser uses an attribute that Sphinx 11 removes. It allows no such Sphinx.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:PendingDeprecationWarning")

FOREIGN = ("http:", "https:", "mailto:", "data:")


class Links(HTMLParser):
    """The targets of a page's links, what the page loads, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = {""}

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attributes if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if name in given:
                (self.targets if tag == "a" else self.loaded).add(given[name])


@cache
def links_of(page: Path) -> Links:
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this checkout."""
    directory = tmp_path_factory.mktemp("site") / "site"
    assert site.build(directory) == []
    return directory


def test_every_link_of_the_site_leads_somewhere(built: Path) -> None:
    pages = [*built.rglob("*.html")]
    dead = []
    for page in pages:
        links = links_of(page)
        for target in links.targets | links.loaded:
            if target.startswith(FOREIGN):
                continue
            parts = urlsplit(target)
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            file = file / "index.html" if file.is_dir() else file
            is_page = file.suffix == ".html"
            if not file.is_file() or (is_page and unquote(parts.fragment) not in links_of(file).anchors):
                dead.append(f"{page.relative_to(built)}: {target}")
    assert len(pages) > 100
    assert dead == []


def test_pages_load_nothing_from_other_hosts(built: Path) -> None:
    pages = built.rglob("*.html")
    assert {one for page in pages for one in links_of(page).loaded if one.startswith(("http", "//"))} == set()


def test_every_page_has_its_markdown_beside_it(built: Path) -> None:
    for page in [Path("README.md"), *site_pages.pages()]:
        markdown = built / site_pages.renamed(page)
        assert markdown.is_file()
        assert "{toctree}" not in markdown.read_text(encoding="utf-8")
        assert markdown.name in links_of(markdown.with_suffix(".html")).targets
        for target in re.findall(r"\]\(([^)\s#]+\.md)[#)]", markdown.read_text(encoding="utf-8")):
            assert target.startswith(FOREIGN) or (markdown.parent / target).is_file(), f"{page}: {target}"


def test_llms_txt_lists_every_page_of_the_index(built: Path) -> None:
    listed = set(re.findall(r"\]\(([^)]+)\)", (built / "llms.txt").read_text(encoding="utf-8")))
    records = {path for path in site_pages.pages() if path.parent == Path("docs/adr")}
    records -= {Path("docs/adr/README.md")}
    wanted = {str(site_pages.renamed(page)) for page in {*site_pages.pages()} - records}
    assert listed == wanted - {"docs/index.md"}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one page in the index, and one that it does not list."""
    for name, text in {
        "README.md": "# pulse\n\n**Jobs.**\n\n[Index](docs/README.md)\n",
        "CHANGELOG.md": "# Changelog\n",
        "CONTRIBUTING.md": "# Contributing\n",
        "deploy/README.md": "# Deploy\n",
        "deploy/ha/README.md": "# Database\n",
        "docs/README.md": "# Docs\n\n## Do it\n\n| | |\n|---|---|\n| [Send mail](how-to/mail.md) | mails |\n"
        "\n## Understand it\n\n| | |\n|---|---|\n| [Decisions](adr/README.md) | why |\n",
        "docs/adr/README.md": "# Decisions\n",
        "docs/how-to/mail.md": "# How to send mail\n\n[its code](../../examples/)\n",
        "docs/how-to/new.md": "# A new page\n\n[mail](mail.md#how-to-send-mail)\n",
        "examples/mail.py": "print()\n",
    }.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(site_pages, "ROOT", tmp_path / "checkout")
    monkeypatch.setattr(site_pages, "REFERENCES", {})
    return tmp_path / "checkout"


def test_page_that_the_index_does_not_list_follows_its_folder(checkout: Path, tmp_path: Path) -> None:
    assert site.build(tmp_path / "site") == []
    navigation = (tmp_path / "site" / "index.html").read_text(encoding="utf-8").partition("<article")[0]
    found = re.findall(r'class="reference internal" href="(docs/how-to[^"]+)">([^<]+)<', navigation)
    assert found == [("docs/how-to/mail.html", "Send mail"), ("docs/how-to/new.html", "A new page")]
    assert "(docs/how-to/mail.md): mails" in (tmp_path / "site" / "llms.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("link", ["gone.md", "mail.md#gone", "#gone"])
def test_link_that_leads_nowhere_is_a_warning(checkout: Path, tmp_path: Path, link: str) -> None:
    with (checkout / "docs" / "how-to" / "new.md").open("a") as page:
        page.write(f"\n[nothing]({link})\n")
    warnings = site.build(tmp_path / "site")
    assert len(warnings) == 1
    assert "docs/how-to/new.md" in warnings[0]
    assert "gone" in warnings[0]
