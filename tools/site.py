"""Builds the documentation's site into build/site: `python3 dev.py docs`. docs/figures.md#the-site."""

import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.console import nocolor
from sphinx.util.docutils import docutils_namespace, patch_docutils

from tools import site_pages, versions
from tools.environment import ROOT

SITE = ROOT / "build" / "site"

_SETTINGS: dict[str, Any] = {
    "project": "pulse",
    "release": versions.declared(),
    "html_title": f"pulse {versions.declared()}",
    "extensions": ["myst_parser"],
    "html_theme": "furo",
    # The anchors that a forge makes from headings. MyST warns of a link to one that does not exist.
    "myst_heading_anchors": 6,
    "html_copy_source": False,
    "html_show_copyright": False,
    # Fragments and transcripts need not be whole programs.
    "suppress_warnings": ["misc.highlighting_failure"],
}

# Tables of the pages may have no titles. Headings have to fit a telephone.
_STYLE = """<style>
thead:not(:has(p:not(:empty))) { display: none }
@media (max-width: 30em) { article h1 { font-size: 1.9em } article h2 { font-size: 1.6em } }
</style>"""


def build(site: Path) -> list[str]:
    """Build the site in place of what was there. Returns the warnings, such as links that lead nowhere."""
    shutil.rmtree(site, ignore_errors=True)
    warnings = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="pulse-site-") as directory:
        source = Path(directory, "source")
        site_pages.stage(source)
        nocolor()
        with patch_docutils(), docutils_namespace():
            app = Sphinx(
                source,
                confdir=None,
                outdir=site,
                doctreedir=Path(directory, "doctrees"),
                buildername="html",
                confoverrides=_SETTINGS,
                status=None,
                warning=warnings,
            )
            app.connect("html-page-context", _link_to_markdown)
            app.build()
        for page in source.rglob("*.md"):
            # The lists that make the navigation are of no use outside of it.
            text, _, _ = page.read_text(encoding="utf-8").partition("\n```{toctree}\n")
            (site / page.relative_to(source)).write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text(site_pages.llms_txt(), encoding="utf-8")
    return warnings.getvalue().replace(f"{source}/", "").splitlines()


def _link_to_markdown(
    app: Sphinx, name: str, template: str, context: dict[str, Any], document: object
) -> None:
    """Link each page to its Markdown, which is beside it."""
    if document is not None:
        file = f"{name.rpartition('/')[2]}.md"
        context["metatags"] += _STYLE
        context["metatags"] += f'<link rel="alternate" type="text/markdown" href="{file}">'
        context["body"] += f'<p><small><a href="{file}">This page as Markdown</a></small></p>'


if __name__ == "__main__":
    if warnings := build(SITE):
        sys.exit("\n".join([*warnings, "The site has warnings. Mend them, then run: python3 dev.py docs"]))
    print(f"built {SITE.relative_to(ROOT)}/index.html and llms.txt")
