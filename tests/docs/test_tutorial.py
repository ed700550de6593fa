"""docs/tutorial.md can be followed word by word: its commands and programs run, and print what it says.

Three things differ from what a reader does: the ports, since those of the page may be taken; the Postgres,
which is that of the test run instead of one that pulsed starts; and the set-up, which is only asked for where
it has nothing to do.
"""

from __future__ import annotations

import html
import re
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, Page
from tests.docs.reader import PATIENCE_SECONDS, Reader, await_fact
from tests.system.stage import free_port
from tools.declared import Profile
from tools.setup import is_ready

PAGE = Page(ROOT / "docs" / "tutorial.md")


@pytest.fixture
def reader(database_dsn: str) -> Iterator[Reader]:
    """A reader at the root of the clone, whose pulsed and dashboard have free ports."""
    server, dashboard = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="reader-") as home:
        reader = Reader(
            Path(home),
            ROOT,
            DB_HOST=database_dsn,
            PULSE_GRPC_ADDR=server,
            PULSE_ADDR=server,
            PULSE_UI_ADDR=dashboard,
        )
        yield reader
        reader.close()


def test_tutorial_can_be_followed(reader: Reader) -> None:
    for step in steps():
        if isinstance(step, Block):
            reader.follow(step)
        else:
            look_at_the_dashboard(reader, step)
    assert reader.worker.printed.count("Traceback") == 3, "one for each attempt that the tutorial lets fail"
    assert reader.terminals["pulse-ui"].interrupt() == 0
    assert reader.terminals["pulsed"].interrupt() == 0


def steps() -> Iterator[Block | str]:
    """Yield the blocks of the page, and the paragraphs that send one to the dashboard, in their order."""
    found: list[tuple[int, Block | str]] = [
        (PAGE.text.index(paragraph), paragraph)
        for paragraph in PAGE.prose.split("\n\n")
        if "<http://127.0.0.1:8080/" in paragraph
    ]
    assert found, "the tutorial shows the dashboard"
    lines = PAGE.text.splitlines(keepends=True)
    found += [(sum(map(len, lines[: block.line])), without_set_up(block)) for block in PAGE.blocks]
    return (step for _, step in sorted(found, key=lambda entry: entry[0]))


def without_set_up(block: Block) -> Block:
    """Leave the set-up out where it would change something: other tests run in the same environment."""
    if "dev.py setup" not in block.text or is_ready(Profile.DEVELOP):
        return block
    kept = [
        line for line in block.text.splitlines(keepends=True) if "dev.py" not in line and ".venv" not in line
    ]
    return Block(block.language, "".join(kept), block.line)


def look_at_the_dashboard(reader: Reader, paragraph: str) -> None:
    """Open the address of the paragraph, and find there what it says in bold."""
    path = re.findall(r"<http://127\.0\.0\.1:8080(/[^>]*)>", paragraph)[0]
    promised = re.findall(r"\*\*(.+?)\*\*", paragraph)
    assert promised
    shown = ""

    def shows_it() -> bool:
        nonlocal shown
        address = f"http://{reader.environment['PULSE_UI_ADDR']}{path}"
        with urllib.request.urlopen(address, timeout=PATIENCE_SECONDS) as response:
            shown = html.unescape(re.sub(r"<[^>]*>", " ", response.read().decode()))
        return all(words in shown for words in promised)

    await_fact(shows_it, lambda: f"{path} shows {promised}, not\n{shown}")
