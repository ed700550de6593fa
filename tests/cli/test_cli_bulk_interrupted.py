"""`pulse jobs retry` for all jobs that match: under load, interrupted, and undone beside a lock."""

import asyncio
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

import pulse as sdk
from pulse_cli.jobs.bulk import Action, go_through
from tests.cli.buried_jobs import bury, sql, statuses, untouched
from tests.cli.command_line import WITH_TESTS, CommandLine, ended, plain_text
from tests.cli.conftest import TASKS
from tests.rows import each_row

MANY = 10_000


@pytest.fixture
def load(own: CommandLine, own_address: str, tmp_path: Path) -> Iterator[None]:
    """A worker that is busy with what a producer stores, for the length of a test."""
    (tmp_path / "tasks.py").write_text(TASKS)
    is_over = threading.Event()

    def produce() -> None:
        with sdk.SyncPulse(own_address) as client:
            while not is_over.wait(0.05):
                client.enqueue_many("ok", [None] * 50)

    producer = threading.Thread(target=produce)
    with own.process("worker", "tasks:app", "--topics", "ok", cwd=tmp_path) as worker:
        producer.start()
        try:
            yield
        finally:
            is_over.set()
            producer.join()
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=30)


def test_interrupted_retry_reports_its_progress_and_leaves_the_rest(
    own: CommandLine, own_database: str, load: None
) -> None:
    bury(own_database, "ok", MANY)
    command = ["jobs", "retry", "--topic", "ok", "--status", "DEAD_LETTERED"]
    pausing = {"module": "tests.cli.pausing_pulse", "PYTHONPATH": WITH_TESTS}
    with own.process(*command, "--yes", "-o", "json", **pausing) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "500 of 10,000 retried\n"
        assert process.stderr.readline() == "1,000 of 10,000 retried\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    found = re.search(r"pulse: ([\d,]+) of 10,000 were retried; the rest is untouched", errors)
    assert found is not None
    action_id = re.search('"action_id": "([0-9a-f-]+)"', out)
    assert action_id is not None
    assert f"Undo with: pulse undo {action_id[1]}" in errors
    brought_back = int(found[1].replace(",", ""))
    assert 1_000 <= brought_back < MANY
    assert f'"changed": {brought_back}, "complete": false' in out
    assert untouched(own_database, "ok") == MANY - brought_back

    left = MANY - brought_back
    with own.terminal(*command, **pausing) as child:  # type: ignore[arg-type]
        child.expect(f"Retry {left:,} DEAD_LETTERED jobs on ok\\? ")
        child.sendline("y")
        child.expect(rf"[1-9][\d,]* of {left:,} retried")
        child.sendintr()
        assert ended(child) == 130
        found = re.search(rf"([\d,]+) of {left:,} were retried; the rest", plain_text(child.before))
    assert found is not None
    left -= int(found[1].replace(",", ""))
    assert untouched(own_database, "ok") == left

    result = own(*command, "--yes")
    assert result.code == 0
    assert f"{left:,} DEAD_LETTERED jobs on ok were retried." in result.out
    (row,) = sql(own_database, "SELECT count(*) FROM pulse.all_jobs WHERE last_error = 'connection refused'")
    assert row[0] == MANY  # none is lost
    assert "DEAD_LETTERED" not in statuses(own_database, "ok")


@each_row(
    "trouble, code, sentence",
    [
        (
            sdk.Unavailable("No pulsed answers."),
            5,
            "when: No pulsed answers. Continue with the same command.",
        ),
        (sdk.PermissionDenied("Not you."), 4, "500 of 900 were retried, then: Not you."),
        (KeyboardInterrupt(), 130, "and perhaps one more batch; the rest is untouched."),
    ],
)
def test_batch_without_an_answer_is_reported_but_not_counted(
    address: str, trouble: BaseException, code: int, sentence: str
) -> None:
    answers = iter([sdk.Batch(500, "cursor", action_id="a")])

    def step(*_: object) -> sdk.Batch:
        if (answer := next(answers, None)) is None:
            raise trouble
        return answer

    with sdk.SyncPulse(address) as client:
        action = Action("retry", "retried", (), step, id="a")
        done, _, failure = go_through(client, action, {}, 900)
        nothing, _, first = go_through(client, action, {}, 900)
    assert done == 500
    assert failure is not None
    assert failure.code == code
    assert failure.sentence.startswith("500 of 900 were retried")
    assert sentence in failure.sentence
    assert failure.details == ("Undo with: pulse undo a",)
    assert nothing == 0
    assert first is not None
    is_refused = isinstance(trouble, sdk.PermissionDenied)
    assert bool(first.details) is not is_refused, "a batch without an answer may have changed jobs"


def test_undo_tells_a_locked_job_from_one_whose_key_is_taken(
    own: CommandLine, own_database: str, topic: str
) -> None:
    def submit(*options: str) -> str:
        return own("submit", topic, "--delay", "2h", *options, "-o", "plain").out.strip()

    submit("--unique", "k")
    locked = submit()
    action = own("jobs", "cancel", "--topic", topic, "--yes", "-o", "json").json["action_id"]
    submit("--unique", "k")

    async def beside_a_lock() -> str:
        connection = await asyncpg.connect(own_database)
        try:
            async with connection.transaction():
                await connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", locked)
                return (await asyncio.to_thread(own, "undo", action, "--yes")).out
        finally:
            await connection.close()

    result = plain_text(asyncio.run(beside_a_lock()))
    assert "0 jobs were undone. 1 is locked by another session of the database." in result
    assert "1 stays as it is: another job holds its unique key." in result
    assert "changed" not in result
