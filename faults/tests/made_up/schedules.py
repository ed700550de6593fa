"""A schedule of a made-up run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from faults.changes import ScheduleChange
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.runs import STEP, MadeUpRun
from pulse_server.schedules.rules import fire_id

SECOND = 1_000_000


class MadeUpSchedule:
    """A schedule with an interval in seconds; each of its jobs runs at once."""

    def __init__(
        self, run: MadeUpRun, seconds: int = 1, catch_up: str = "one", overlap: str = "allow"
    ) -> None:
        self.id = str(UUID(int=run.number()))
        self.cursor: int | None = None
        self._run = run
        self._interval = seconds * SECOND
        self._catch_up = catch_up
        self._overlap = overlap
        self._queued_for: int | None = None
        self._last: int | None = None
        self._paused = False
        self._was_paused: bool | None = None
        self.move(run.at + self._interval, is_edit=True)

    def fire(self, *, late: int = STEP) -> MadeUpJob:
        """Wait for the occurrence, make its job, move the cursor as the catch-up rule says, run the job."""
        job = self.step(self.following(late), late=late)
        assert job is not None
        return job.run("worker-1")

    def following(self, late: int = STEP) -> int:
        """Return the occurrence after the cursor's, if that is fired this late."""
        assert self.cursor is not None
        missed = 0 if self._catch_up == "all" else max(0, late // self._interval)
        return self.cursor + (missed + 1) * self._interval

    def step(self, to: int | None, *, late: int = STEP, is_fired: bool = True) -> MadeUpJob | None:
        """Wait for the occurrence, make its job unless it is passed over, and move the cursor anywhere."""
        run, occurrence = self._run, self.cursor
        assert occurrence is not None
        run.wait_until(occurrence + late)
        job = None
        if is_fired:
            job, self._last = self.insert(occurrence), occurrence
        self.move(to, txid=run.changes[-1].txid if job else run.number())
        return job

    def insert(self, occurrence: int) -> MadeUpJob:
        job_id = fire_id(self.id, _moment(occurrence))
        return MadeUpJob(self._run, "", job_id=job_id, topic="tick").insert(schedule_id=self.id)

    def fire_queued(self, occurrence: int) -> MadeUpJob:
        """Make the job of an occurrence that has waited for the end of another."""
        job = self.insert(occurrence)
        self._queued_for = occurrence
        self.move(self.cursor, txid=self._run.changes[-1].txid)
        self._queued_for = None
        return job.run("worker-1")

    def pause(self) -> None:
        self._paused = True
        self.move(self.cursor, is_edit=True)

    def delete(self) -> None:
        op = self._run.send("schedule_delete", schedule_id=self.id)
        self.move(None)
        self._run.answer("schedule_delete", op, schedule_id=self.id)

    def move(self, cursor: int | None, *, is_edit: bool = False, txid: int = 0) -> None:
        """Change the row in any way, legal or not."""
        run = self._run
        paused = None if cursor is None else self._paused
        rows = (self.cursor, self._was_paused, cursor, paused, self._last, is_edit)
        timetable = ("interval", None, self._interval // 1000, None, "UTC", self._catch_up)
        rules = (self._overlap, self._queued_for)
        run.schedules.append(
            ScheduleChange(run.number(), txid, run.at, run.at, self.id, *rows, *timetable, *rules)
        )
        self.cursor, self._was_paused = cursor, paused
        run.wait()


def _moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
