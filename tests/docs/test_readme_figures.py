"""The README claims no figure that docs/benchmarks.md does not have."""

import re

from tests.docs.pages import ROOT, Page

README = Page(ROOT / "README.md")
BENCHMARKS = Page(ROOT / "docs" / "benchmarks.md")
FIGURE = re.compile(r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d{3})(?![\w.,]*\d)")


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    measured = {*FIGURE.findall(BENCHMARKS.text)}
    (table,) = re.findall(r"^Measured side by side.*?(?=^## )", README.prose, re.MULTILINE | re.DOTALL)
    (claim,) = re.findall(
        r"^- \*\*The load on the database.*?(?=^- )", README.prose, re.MULTILINE | re.DOTALL
    )
    claimed = {*FIGURE.findall(table), *FIGURE.findall(claim)}
    assert len(claimed) > 30
    assert claimed - measured == set()
