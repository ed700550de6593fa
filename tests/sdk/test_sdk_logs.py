"""What a worker logs: the level of a failed attempt, and the job on every record of its handler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import pulse
from pulse import tuning
from pulse.error_text import in_a_line
from pulse.handlers.context import add_job_to_log_records
from pulse.worker.worker import WorkerSettings
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed
from tests.sdk.scripts import start_script

# A thread that is interrupted before it waits in C ends, and no slot is lost.
INSIDE_BY_THEN = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def _factory_of_before() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(logging.LogRecord)
    yield
    logging.setLogRecordFactory(before)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[str], logging.LogRecord]:
    """Return the record of a job's failure."""
    caplog.set_level(logging.INFO)

    def find(job_id: str) -> logging.LogRecord:
        (found,) = (record for record in caplog.records if f"Job {job_id} " in record.getMessage())
        return found

    return find


def _fails() -> None:
    raise ValueError("bad")


def _retries() -> None:
    raise pulse.Retry(after=timedelta(seconds=1), reason="busy")


def _discards() -> None:
    raise pulse.Discard("no such user")


@pytest.mark.parametrize(
    ("handler", "attempt", "level", "then", "has_exception"),
    [
        (_fails, 1, "WARNING", "it will be retried", True),
        (_fails, 3, "ERROR", "it is a dead letter", True),
        (_retries, 1, "INFO", "it will be retried", False),
        (_retries, 3, "ERROR", "it is a dead letter", True),
        (_discards, 1, "ERROR", "it is a dead letter", True),
    ],
)
async def test_attempt_that_is_the_last_one_is_logged_as_an_error_with_its_exception(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    logged: Callable[[str], logging.LogRecord],
    handler: Callable[[], None],
    attempt: int,
    level: str,
    then: str,
    has_exception: bool,
) -> None:
    p.register("work", handler)
    async with running(p):
        fake.deliver("j1", attempt=attempt, max_attempts=3)
        await fake.until_async(lambda: "j1" in fake.results)
    record = logged("j1")
    assert record.levelname == level
    assert f"failed on attempt {attempt} of 3, {then}: " in record.getMessage()
    assert (record.exc_info is not None) is has_exception


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("attempt", "level", "then"),
    [(1, "WARNING", "it will be retried"), (2, "ERROR", "it is a dead letter")],
)
async def test_attempt_that_does_not_end_at_its_limit_is_logged_as_any_failed_attempt(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_async: bool,
    attempt: int,
    level: str,
    then: str,
) -> None:
    monkeypatch.setattr(tuning, "TIME_LIMIT_GRACE_SECONDS", 0.05)
    caplog.set_level(logging.INFO)
    limit = INSIDE_BY_THEN
    go, went_on = threading.Event(), asyncio.Event()

    @p.job("threaded", timeout=limit)
    def wait_in_c() -> None:
        go.wait()

    @p.job("async", timeout=limit)
    async def swallow_cancellation() -> None:
        while not went_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await went_on.wait()

    @p.job("other", timeout=timedelta(minutes=1))
    async def other() -> None:
        await went_on.wait()

    p._worker_settings = WorkerSettings(3, 5.0, None, lost_slots_exit=3)
    async with running(p):
        fake.deliver("j0", topic="other")  # its timer must not lend its job to the records of the next
        fake.deliver("j1", topic="async" if is_async else "threaded", attempt=attempt, max_attempts=2)
        await fake.until_async(lambda: "j1" in fake.results)
        go.set()
        went_on.set()
    failed, slot, *_ = (record for record in caplog.records if "Job j1 " in record.getMessage())
    assert failed.levelname == level
    assert f"failed on attempt {attempt} of 2, {then}: TimedOut: " in failed.getMessage()
    assert failed.exc_info is not None
    assert isinstance(failed.exc_info[1], pulse.TimedOut)
    assert slot.levelname == "WARNING"
    assert "its slot is lost (1 of 3)" in slot.getMessage()
    assert ("in swallow_cancellation" if is_async else "in wait_in_c") in slot.getMessage()
    job = ("j1", "async" if is_async else "threaded", attempt)
    assert [_facts(record) for record in (failed, slot)] == [job] * 2


def test_thread_that_outlives_its_worker_is_not_reported_as_ended(fake: FakePulsed) -> None:
    worker = start_script(
        """
        import asyncio, logging, sys, time
        from datetime import timedelta
        import pulse
        from pulse import tuning

        logging.basicConfig(level=logging.INFO)
        tuning.TIME_LIMIT_GRACE_SECONDS = 0.05
        p = pulse.Pulse(sys.argv[1], lost_slots_exit=1)

        @p.job("work", timeout=timedelta(seconds=1))
        def handle() -> None:
            time.sleep(3600)

        asyncio.run(p.run())
        """,
        fake.address,
    )
    fake.deliver("j1")
    _, log = worker.communicate(timeout=PATIENCE_SECONDS)
    assert "its slot is lost" in log
    assert "pulse.errors.SlotsLost" in log
    assert "has ended at last" not in log


async def test_late_end_of_a_handler_that_was_given_up_is_logged_with_its_job(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tuning, "TIME_LIMIT_GRACE_SECONDS", 0.05)
    caplog.set_level(logging.INFO)
    go = threading.Event()

    @p.job("work", timeout=INSIDE_BY_THEN)
    def handle() -> None:
        go.wait()

    p._worker_settings = WorkerSettings(2, 5.0, None, lost_slots_exit=2)
    async with running(p):
        fake.deliver("j1", attempt=2)
        await fake.until_async(lambda: 1 in fake.capacities)
        assert "has ended at last" not in caplog.text
        go.set()
        await fake.until_async(lambda: fake.capacities[-1] >= 2)
    (ended,) = (record for record in caplog.records if "has ended at last" in record.getMessage())
    assert _facts(ended) == ("j1", "work", 2)


async def test_records_of_a_handler_carry_its_job_whatever_the_logger(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    other = logging.getLogger("some.library")

    @p.job("work")
    async def in_the_loop() -> None:
        other.info("inside", extra={"job_id": "mine", "topic": "mine"})
        pulse.current().logger.info("inside")

    @p.job("threaded")
    def in_a_thread() -> None:
        other.info("inside")
        thread = threading.Thread(target=other.info, args=("outside",))
        thread.start()
        thread.join()

    async with running(p):
        fake.deliver("j1", attempt=2)
        fake.deliver("j2", topic="threaded")
        await fake.until_async(lambda: len(fake.results) == 2)
        other.info("outside")
    inside = [_facts(record) for record in caplog.records if record.getMessage() == "inside"]
    assert sorted(inside) == [("j1", "work", 2), ("j1", "work", 2), ("j2", "threaded", 1)]
    outside = [record for record in caplog.records if record.getMessage() == "outside"]
    assert [_facts(record) for record in outside] == [("", "", 0)] * 2
    assert "job_id=mine" in "".join(f"job_id={getattr(record, 'job_id', '')}" for record in caplog.records)


def _facts(record: Any) -> tuple[str, str, int]:
    return record.pulse_job_id, record.pulse_topic, record.pulse_attempt


def test_record_factory_of_the_application_still_makes_the_records() -> None:
    class Mine(logging.LogRecord):
        pass

    logging.setLogRecordFactory(Mine)
    add_job_to_log_records()
    add_job_to_log_records()
    record = logging.getLogger("x").makeRecord("x", logging.INFO, "f", 1, "m", (), None)
    assert isinstance(record, Mine)
    assert _facts(record) == ("", "", 0)


def test_text_from_outside_cannot_forge_a_line_or_fill_the_log() -> None:
    assert in_a_line("a\nb\x1b[2J\u202e\ud800") == "a\\nb\\x1b[2J\\u202e\\ud800"
    assert in_a_line("ü" * 1000) == "ü" * 499 + "…"


async def test_error_and_topic_of_a_job_are_logged_on_one_line(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    logged: Callable[[str], logging.LogRecord],
) -> None:
    @p.job("work")
    async def handle() -> None:
        raise ValueError("\x1b[31m" + "x" * 2000)

    async with running(p):
        fake.deliver("j0", topic="un\nknown")
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert "un\\nknown" in logged("j0").getMessage()
    message = logged("j1").getMessage()
    assert message.isprintable()
    assert len(message) < 700


def _of_a_megabyte() -> None:
    raise ValueError("\0" * (1 << 20))


def _at_the_end_of_a_long_chain() -> None:
    error: Exception = ValueError("the first")
    for _ in range(5000):
        try:
            raise ValueError("the next") from error
        except ValueError as raised:
            error = raised
    raise error


@pytest.mark.parametrize("handler", [_of_a_megabyte, _at_the_end_of_a_long_chain])
async def test_text_of_a_logged_error_is_bounded(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    logged: Callable[[str], logging.LogRecord],
    handler: Callable[[], None],
) -> None:
    p.register("work", handler)
    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    record = logged("j1")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
    assert "ValueError" in logging.Formatter().format(record)
    assert len(logging.Formatter().format(record)) < 20_000
