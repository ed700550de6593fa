"""Jobs that share all options, as columns: a thousand jobs take a few objects, not a thousand.

Any layer may treat them as a plain sequence of jobs. The path of a bulk submit uses the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import overload

from pulse_server.base.errors import PulseError
from pulse_server.domain.jobs import NewJob, Submitted

ID_BYTES = 16
_ID_DIGITS = 2 * ID_BYTES


class UniformJobs(Sequence[NewJob]):
    """New jobs that differ only in their ids, 16 bytes each, and in their payloads."""

    __slots__ = ("ids", "payloads", "template")

    def __init__(self, template: NewJob, ids: bytes, payloads: list[bytes]) -> None:
        self.template = template
        self.ids = ids
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[NewJob]:
        for digits, payload in zip(self.id_digits, self.payloads, strict=True):
            yield self.template._replace(id=_canonical(digits), payload=payload)

    @overload
    def __getitem__(self, place: int) -> NewJob: ...
    @overload
    def __getitem__(self, place: slice) -> UniformJobs: ...
    def __getitem__(self, place: int | slice) -> NewJob | UniformJobs:
        if isinstance(place, int):
            place = range(len(self))[place]
            (job,) = self[place : place + 1]
            return job
        begin, end, step = place.indices(len(self))
        if step != 1:
            raise ValueError("Uniform jobs are sliced without a step.")
        return UniformJobs(
            self.template, self.ids[begin * ID_BYTES : end * ID_BYTES], self.payloads[begin:end]
        )

    @property
    def id_digits(self) -> list[str]:
        """The ids in hexadecimal, without dashes."""
        digits = self.ids.hex()
        return [digits[at : at + _ID_DIGITS] for at in range(0, len(digits), _ID_DIGITS)]


class AllInserted(Sequence[Submitted]):
    """The answers if every job was inserted and no job was handed over."""

    __slots__ = ("_jobs", "submitted_at")

    def __init__(self, jobs: Sequence[NewJob], submitted_at: datetime | None = None) -> None:
        """`submitted_at`: when the first job was stored."""
        self._jobs = jobs
        self.submitted_at = submitted_at

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Submitted]:
        for job in self._jobs:
            yield Submitted(job.id, False, submitted_at=self.submitted_at)

    @overload
    def __getitem__(self, place: int) -> Submitted: ...
    @overload
    def __getitem__(self, place: slice) -> AllInserted: ...
    def __getitem__(self, place: int | slice) -> Submitted | AllInserted:
        if isinstance(place, int):
            return Submitted(self._jobs[place].id, False, submitted_at=self.submitted_at)
        return AllInserted(self._jobs[place], self.submitted_at)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list


def inserted_and_taken(
    jobs: Sequence[NewJob], answers: Sequence[Submitted | PulseError]
) -> tuple[Sequence[NewJob], set[str]]:
    """The jobs that were inserted, and the ids of those that were handed over."""
    if isinstance(answers, AllInserted):
        return jobs, set()
    inserted = [
        (job, answer.is_taken)
        for job, answer in zip(jobs, answers, strict=True)
        if isinstance(answer, Submitted) and not answer.duplicate
    ]
    return [job for job, _ in inserted], {job.id for job, is_taken in inserted if is_taken}


def kinds(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Jobs that have every topic, priority and start among these. Their ids and payloads are any."""
    return (jobs.template,) if isinstance(jobs, UniformJobs) and jobs else jobs


def topics_of(jobs: Sequence[NewJob]) -> list[str]:
    """The topic of each job."""
    if isinstance(jobs, UniformJobs):
        return [jobs.template.topic] * len(jobs)
    return [job.topic for job in jobs]


def _canonical(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
