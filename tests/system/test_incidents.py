"""Incidents as an operator meets them: a real pulsed, real workers, `pulse` as a process, and caches on."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import pulse
from tests.cli.buried_jobs import bury
from tests.cli.command_line import CommandLine, Result, ended, plain_text
from tests.eventually import eventually
from tests.system.stage import Stage, finished
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable
from tests.ui.dashboards import dashboard_under_test
from tests.ui.visitors import Visitor

WITHIN_SECONDS = 60
# Late since before the deploy, and many more than those that fail: harm counts, not numbers.
LATE_TOPICS = 9
LATE_JOBS = 300
ORDERS = 60
REMINDERS = 3_000
OLD_LETTERS = 500
LATE = "UPDATE pulse.jobs SET next_run_at = now() - interval '5 minutes' WHERE topic LIKE 'late-%'"
STARTS = "SELECT id, status, next_run_at FROM pulse.jobs WHERE topic = 'reminders' ORDER BY id"


class Program:
    """`pulse` as a process that talks to a server."""

    def __init__(self, home: Path, address: str) -> None:
        self.command = CommandLine(home, {"PULSE_ADDR": address})

    async def __call__(self, *arguments: str) -> Result:
        """Run a command in a pipe."""
        process = self.command.process(*arguments)
        out, err = await asyncio.to_thread(process.communicate)
        return Result(process.returncode, out, err)


@pytest.mark.parametrize("attempts", [1, 25], ids=["dead letters", "retries"])
async def test_topic_of_a_bad_deploy_comes_first_within_a_minute(
    stage: Stage, table: JobsTable, tmp_path: Path, attempts: int
) -> None:
    server = await stage.pulsed()
    program = Program(tmp_path, server.address)
    async with (
        pulse.Pulse(server.address) as p,
        dashboard_under_test(server.address) as dashboard,
    ):
        for number in range(LATE_TOPICS):
            await p.enqueue_many(f"late-{number}", [Errand()] * LATE_JOBS)
        await table.connection.execute(LATE)
        good = await stage.worker(server.address, "orders=work")
        for handle in await p.enqueue_many("orders", [Errand()] * ORDERS):
            await finished(p, handle.id)

        async def first_in_the_cli() -> str:
            first, *_ = (await program("attention", "--output", "plain")).rows
            return first[2]

        visitor = Visitor(dashboard.url)

        async def first_on_the_page() -> str:
            page = (await visitor.get("/")).text
            found = re.search(r'class="finding-words">.*?<code>(.*?)</code>', page, re.DOTALL)
            return found[1] if found else ""

        assert re.fullmatch("late-.", await eventually(first_on_the_page, "the late topics are shown"))
        good.kill()
        await stage.worker(server.address, "orders=broken")
        await p.enqueue_many("orders", [Errand()] * ORDERS, max_attempts=attempts)

        async def is_first() -> bool:
            return (await first_in_the_cli(), await first_on_the_page()) == ("orders", "orders")

        await eventually(is_first, "the topic of the deploy is the first line", WITHIN_SECONDS)


async def test_mistaken_cancel_of_delayed_jobs_is_undone(
    stage: Stage, table: JobsTable, tmp_path: Path
) -> None:
    server = await stage.pulsed()
    program = Program(tmp_path, server.address)
    await stage.worker(server.address, "reminders=work", "work")

    async def rows() -> list[Any]:
        return [tuple(row) for row in await table.connection.fetch(STARTS)]

    async with pulse.Pulse(server.address) as p:
        items = [
            pulse.JobItem(Errand(), delay=timedelta(hours=1, seconds=number)) for number in range(REMINDERS)
        ]
        await p.enqueue_many("reminders", items)
        before = await rows()

        canceled = await program("jobs", "cancel", "--topic", "reminders", "--yes")

        assert canceled.code == 0, canceled.err
        assert {status for _, status, _ in await rows()} == {"CANCELED"}
        (action,) = re.findall(r"Undo with: pulse undo (\S+)", plain_text(canceled.out))
        undone = await program("undo", action, "--yes", "--output", "json")
        assert (undone.code, undone.json["undone"]) == (0, REMINDERS), undone.err
        assert await rows() == before
        # The server promotes and the worker runs what is due, and that is none of them.
        due = await p.enqueue("work", Errand("due"), delay=timedelta(milliseconds=100))
        await finished(p, due.id)
    assert {start.job_id for start in stage.executions()} == {due.id}
    assert await rows() == before


async def test_wrong_retention_deletes_nothing_without_a_yes(
    stage: Stage, table: JobsTable, tmp_path: Path
) -> None:
    server = await stage.pulsed()
    program = Program(tmp_path, server.address)
    await asyncio.to_thread(bury, stage.dsn, "orders", OLD_LETTERS)
    wrong = ("topics", "set", "orders", "--keep-dead-lettered", "1m")

    async def kept() -> tuple[str, int]:
        shown = await program("topics", "show", "orders", "--output", "json")
        return json.dumps(shown.json["in_force"]["keep_dead_lettered"]), await table.count("topic = 'orders'")

    before = await kept()
    assert before[1] == OLD_LETTERS

    in_a_script = await program(*wrong)
    with program.command.terminal(*wrong, columns=200) as terminal:
        terminal.expect(r"\[y/N\]")
        question = plain_text(terminal.before)
        terminal.sendline("n")
        at_a_terminal = ended(terminal)

    assert (in_a_script.code, at_a_terminal) == (2, 1)
    for asked in (in_a_script.err, question):
        assert re.search(r"This deletes up to 49\d DEAD_LETTERED jobs for good", asked), asked
    assert await kept() == before
