"""A reader who follows a link arrives somewhere, and finds every page from the index.

References that are made from code are pages like the others: links from and to them are checked too.
"""

from tests.docs.pages import EVERY_PAGE, ROOT, Page
from tests.rows import each_row

BY_PATH = {page.path: page for page in EVERY_PAGE}


@each_row("page", EVERY_PAGE)
def test_links_lead_somewhere(page: Page) -> None:
    for link in page.links:
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.path.parent / file).resolve() if file else page.path
        assert target in BY_PATH or target.exists(), f"{page.name} links to {link}, which is not there"
        assert target.is_relative_to(ROOT), f"{page.name} links out of the repository: {link}"
        if anchor:
            assert anchor in BY_PATH[target].anchors, f"{page.name} links to {link}: no such heading"


def test_every_page_of_the_documentation_is_found_from_its_index() -> None:
    docs = ROOT / "docs"
    found = {docs / "README.md"}
    unread = [*found]
    while unread:
        page = BY_PATH[unread.pop()]
        targets = {(page.path.parent / link.partition("#")[0]).resolve() for link in page.links}
        new = {target for target in targets if target in BY_PATH} - found
        found |= new
        unread += new
    assert {page.path for page in EVERY_PAGE if page.path.is_relative_to(docs)} <= found


def test_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in BY_PATH[ROOT / "README.md"].links
