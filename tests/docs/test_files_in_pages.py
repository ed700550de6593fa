"""Files and tests that a page names are where it says."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT, WRITTEN_BY_HAND, Page
from tests.rows import each_row

FILE = re.compile(
    r"(?P<path>[\w.-]+(?:/[\w.-]+)*/[\w-]+\.(?:html|js|mjs|proto|py|sql|ya?ml))(?:::(?P<test>test_\w+)(?P<more>…)?)?"
)
TEST = re.compile(r"(?:…)?::(?P<test>test_\w+)(?P<more>…)?")
PATTERNS = ("NNNN_",)  # the names of files to come


@cache
def every_file() -> tuple[str, ...]:
    found: list[str] = []
    for here, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        found += [str(Path(here, name).relative_to(ROOT)) for name in files]
    return tuple(found)


@cache
def names_in(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"def (test_\w+)", (ROOT / path).read_text(encoding="utf-8")))


@cache
def every_test() -> frozenset[str]:
    files = (path for path in every_file() if re.match(r"(faults/|benchmarks/)?tests/.*test_\w+\.py$", path))
    return frozenset().union(*map(names_in, files))


# The changelog speaks of the past.
@each_row("page", [page for page in WRITTEN_BY_HAND if page.name != "CHANGELOG.md"])
def test_files_and_tests_that_a_page_names_exist(page: Page) -> None:
    for code in page.inline_code:
        if named := FILE.fullmatch(code):
            path = named["path"].lstrip("./")
            found = [file for file in every_file() if file == path or file.endswith(f"/{path}")]
            assert found or any(pattern in path for pattern in PATTERNS), f"{page.name} names {code}"
            known = names_in(found[0]) if named["test"] else frozenset[str]()
        elif named := TEST.fullmatch(code):
            known = every_test()
        else:
            continue
        if (test := named["test"]) and named["more"]:
            assert any(name.startswith(test) for name in known), f"{page.name} names {code}"
        elif test:
            assert test in known, f"{page.name} names {code}"
