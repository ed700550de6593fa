"""Code, commands and names in the documentation are those of the software."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import asyncpg
import click
import pytest

from pulse import failpoints
from pulse.supervision.processes import NUMBER_VARIABLE
from pulse_cli.connection import FIELDS
from pulse_cli.outbox.commands import VARIABLE as OUTBOX_VARIABLE
from pulse_cli.program import pulse as program
from pulse_server.base.metrics import Counter, Metrics
from pulse_server.settings import OPTIONS
from pulse_server.settings.reading import parser as pulsed_parser
from pulse_ui.settings import OPTIONS as DASHBOARD_OPTIONS
from pulse_ui.settings import parser as dashboard_parser
from tests.cli.reading import nothing_runs
from tests.docs.pages import EVERY_PAGE, ROOT, WRITTEN_BY_HAND, Page
from tests.rows import each_row

# Their Python is run: test_readme_code, test_tutorial, test_how_to and test_framework_pages see to it.
RUN = {
    "README.md",
    "docs/handlers.md",
    "docs/tutorial.md",
    "docs/how-to/cpu-bound-jobs-and-time-limits.md",
    "docs/how-to/django.md",
    "docs/how-to/django-tasks.md",
    "docs/how-to/fastapi.md",
    "docs/how-to/flask.md",
    "docs/how-to/from-celery.md",
    "docs/how-to/idempotent-handlers.md",
    "docs/how-to/limits-tenants-and-fairness.md",
    "docs/how-to/long-jobs.md",
    "docs/how-to/middleware-and-resources.md",
    "docs/how-to/one-job-at-a-time.md",
    "docs/how-to/outbox.md",
    "docs/how-to/results.md",
    "docs/how-to/run-workers.md",
    "docs/how-to/structlog-and-sentry.md",
    "docs/how-to/test-your-jobs.md",
    "docs/how-to/transactions.md",
    "docs/how-to/web-applications.md",
    "docs/how-to/workflows.md",
}


def test_every_page_with_python_in_it_is_run() -> None:
    with_python = {
        page.name for page in WRITTEN_BY_HAND if any(block.language == "python" for block in page.blocks)
    }
    assert with_python == RUN


@each_row("name", sorted(RUN))
def test_python_can_be_compiled(name: str) -> None:
    for block in Page(ROOT / name).blocks:
        if block.language == "python":
            compile(block.text, f"{name}:{block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# ---------------------------------------------------------------- commands


def ours(command: str) -> Iterator[tuple[str, ...]]:
    """Yield the programs of a command line that are ours, each with its arguments."""
    for part in re.split(r" \| | && |; ", command.split("  #")[0].split("<<<")[0]):
        try:
            words = shlex.split(part)
        except ValueError:
            continue  # prose between backticks, with an apostrophe
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if words and words[0] in ("pulse", "pulsed", "pulse-ui", "python3"):
            yield tuple(word for word in words if not re.fullmatch(r"\d?>.*", word))


# The examples of docs/cli.md are tested with the commands themselves, and the changelog speaks of the past.
PAGES = [page for page in EVERY_PAGE if page.name not in ("docs/cli.md", "CHANGELOG.md")]
TYPED = sorted(
    {
        words
        for page in PAGES
        for block in page.blocks
        if block.language == "console"
        for line in re.findall(r"^[$#] (.+)$", block.text.replace("\\\n", " "), re.MULTILINE)
        for words in ours(line)
    }
)
MENTIONED = sorted({words for page in PAGES for code in page.inline_code for words in ours(code)} - {*TYPED})


def test_pages_are_full_of_commands() -> None:
    assert len(TYPED) > 40
    assert {words[0] for words in TYPED} == {"pulse", "pulsed", "pulse-ui", "python3"}


@each_row("words", TYPED)
def test_command_of_a_page_can_be_typed(words: tuple[str, ...]) -> None:
    """It names a command and its options as they are; nothing is run."""
    parse(words)


@each_row("words", MENTIONED)
def test_command_that_a_page_mentions_exists(words: tuple[str, ...]) -> None:
    """Its options exist too; what it is given in addition may be left out."""
    try:
        parse(words)
    except click.UsageError as error:
        if not isinstance(error, click.MissingParameter) and "NoArgs" not in type(error).__name__:
            raise


def parse(words: tuple[str, ...]) -> None:
    """Have the program read its arguments. Raises what it raises if it cannot."""
    name, *arguments = words
    match name:
        case "pulse":
            with nothing_runs():
                program.main(arguments, "pulse", standalone_mode=False)
        case "pulsed" | "pulse-ui":
            if not {"--help", "--version"} & {*arguments}:
                (pulsed_parser() if name == "pulsed" else dashboard_parser()).parse_args(arguments)
        case "python3" if arguments[0] == "dev.py":
            explained = (ROOT / "dev.py").read_text(encoding="utf-8").split('"""')[1]
            assert not arguments[1:] or f"\n  {arguments[1]} " in explained


# ---------------------------------------------------------------- names


PACKAGES = {"pulse_server", "pulse_cli", "pulse_text", "pulse_ui"}
ON_LOG_RECORDS = {"pulse_job_id", "pulse_topic", "pulse_attempt", "pulse_job"}
FIXTURES = {"pulse_kit", "pulse_server", "pulse_connect", "pulse_worker"}  # and a command of manage.py


def test_metrics_in_the_pages_exist() -> None:
    known = {
        instrument.name + ("_total" if isinstance(instrument, Counter) else "") for instrument in Metrics()
    }
    for page in EVERY_PAGE:
        code = " ".join(
            [*page.inline_code, *(block.text for block in page.blocks if block.language == "promql")]
        )
        for name in re.findall(r"(?<![\w./])pulse_[a-z_]+(?![\w.*/])", code):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert base in known | PACKAGES | ON_LOG_RECORDS | FIXTURES, f"{page.name} names {name}"


def test_settings_in_the_pages_exist() -> None:
    known = {option.variable for option in OPTIONS} | {option.variable for option in DASHBOARD_OPTIONS}
    known |= {field.variable for field in FIELDS.values() if field.variable}
    known |= {failpoints.VARIABLE, failpoints.SEED_VARIABLE, OUTBOX_VARIABLE}
    known |= {"PULSE_APPLICATION", NUMBER_VARIABLE}  # the SDK's alone
    # Tracebacks of the command line, and a slip that shows what pulsed says to one.
    known |= {"PULSE_DEBUG", "PULSE_LEASE_TLL"}
    for page in EVERY_PAGE:
        for name in re.findall(r"\bPULSE_[A-Z_]*[A-Z](?![A-Z_*…])", page.text):
            assert name in known, f"{page.name} names {name}"


# ---------------------------------------------------------------- SQL


QUERIES = [
    pytest.param(block.text, id=f"{page.name}:{block.line}")
    for page in WRITTEN_BY_HAND
    for block in page.blocks
    if block.language == "sql" and not re.search(r"^(CREATE|GRANT|ALTER)\b", block.text, re.MULTILINE)
]


@pytest.mark.parametrize("query", QUERIES)
async def test_query_of_a_page_can_be_asked(query: str, database_dsn: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    try:
        await connection.execute(query)
    finally:
        await connection.close()
