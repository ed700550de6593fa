"""`pulse worker` opens the resources of an application, and shows the job of each line of its handlers."""

import signal
from pathlib import Path

from tests.cli.command_line import CommandLine

APPLICATION = """
import logging
from collections.abc import Iterator

import pulse

app = pulse.Pulse()
log = logging.getLogger("shop")


class Database: ...


@app.resource
def database() -> Iterator[Database]:
    {opening}
    yield Database()
    log.info("the database is closed")


@app.job("{topic}")
def handle(db: Database = pulse.INJECTED) -> None:
    log.info("with a %s\\x1b[2J", type(db).__name__)
"""


def _write(directory: Path, topic: str, opening: str = "pass") -> None:
    (directory / "shop.py").write_text(APPLICATION.format(topic=topic, opening=opening))


def test_lines_of_a_handler_end_with_its_job_and_nothing_reaches_the_terminal_that_it_obeys(
    pulse: CommandLine, tmp_path: Path, topic: str
) -> None:
    _write(tmp_path, topic)
    with pulse.process("worker", "shop:app", cwd=tmp_path) as process:
        job = pulse("submit", topic, "-o", "plain", "--wait").out.split()[0]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert f" INFO shop: with a Database\\x1b[2J [{topic} {job}, attempt 1]\n" in errors
    assert " INFO shop: the database is closed\n" in errors


def test_resource_that_cannot_be_opened_ends_the_worker_with_a_sentence(
    pulse: CommandLine, tmp_path: Path, topic: str
) -> None:
    _write(tmp_path, topic, opening="raise OSError('no route')")
    with pulse.process("worker", "shop:app", cwd=tmp_path) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode not in (0, None)
    sentence = "pulse: The resource database cannot be opened: OSError: no route"
    last = errors.splitlines()[-1]
    assert last.startswith(f"{sentence} ({tmp_path / 'shop.py'}, line ")
    assert "Traceback" not in errors
