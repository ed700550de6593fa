"""Words that the domain has one list of, and that stand again on the wire and in the SDK: the same ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import grpc

import pulse
from pulse_server.base import errors
from pulse_server.doors.boundary import status_of
from pulse_server.jobs.rules import JobStatus, Outcome
from pulse_server.schedules.rules import CatchUp
from tests.rows import each_row

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = (ROOT / "proto" / "pulse" / "v1" / "pulse.proto").read_text(encoding="utf-8")
ERRORS = [
    error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, errors.PulseError) and error is not errors.PulseError
]


def test_sdk_has_the_statuses_of_the_server() -> None:
    assert [status.value for status in pulse.JobStatus] == [status.value for status in JobStatus]


def test_contract_lists_the_statuses_of_the_server() -> None:
    assert re.findall(r"string status = \d+;  // original; (.*)", CONTRACT) == [", ".join(JobStatus)]


def test_contract_lists_the_outcomes_of_attempts() -> None:
    assert re.findall(r"string outcome = \d+;  // (\w+,.*)", CONTRACT) == [", ".join(Outcome)]


def test_sdk_has_the_ways_to_catch_up() -> None:
    assert get_args(pulse.CatchUp) == tuple(CatchUp)


def test_every_error_is_drawn_at_the_top_of_its_module() -> None:
    drawn = re.findall(r"^[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE)

    assert sorted(drawn) == sorted(error.__name__ for error in ERRORS)


@each_row("error", ERRORS)
def test_every_error_has_a_status_of_its_own_on_the_wire(error: type[errors.PulseError]) -> None:
    assert status_of(error.__new__(error)) is not grpc.StatusCode.UNKNOWN
