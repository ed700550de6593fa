"""Actions on single jobs, a few at a time."""

from __future__ import annotations

import asyncio

import pytest

import pulse
from pulse_ui.web.operations import act_on_each, each


async def test_refusal_of_one_leaves_the_others_their_turn() -> None:
    async def settle(job_id: str) -> None:
        if job_id == "2":
            raise pulse.InvalidTransition("Job 2 is COMPLETED.")

    outcome = await act_on_each(["1", "2", "3"], settle)
    assert not outcome.is_good
    assert outcome.sentence("canceled") == "2 jobs were canceled. 1 were refused: Job 2 is COMPLETED."


async def test_many_refusals_are_summarized() -> None:
    async def settle(job_id: str) -> None:
        raise pulse.NotFound(f"There is no job {job_id}.")

    outcome = await act_on_each(["1", "2", "3", "4"], settle)
    assert outcome.sentence("deleted") == (
        "0 jobs were deleted. 4 were refused: There is no job 1. There is no job 2. And 2 more."
    )


async def test_unavailable_server_ends_it_and_progress_is_reported() -> None:
    tried = []

    async def settle(job_id: str) -> None:
        tried.append(job_id)
        await asyncio.sleep(0)
        if job_id != "0":
            raise pulse.Unavailable("No answer.")

    outcome = await act_on_each([str(number) for number in range(50)], settle)
    assert outcome.done == 1
    assert outcome.untried == 49
    assert len(tried) < 50
    assert "No answer." in outcome.sentence("retried")


async def test_failure_before_anything_was_done_is_raised() -> None:
    async def settle(job_id: str) -> None:
        raise pulse.PermissionDenied("Not you.")

    with pytest.raises(pulse.PermissionDenied):
        await act_on_each(["1"], settle)


async def test_only_a_few_are_under_way_at_a_time() -> None:
    under_way = most = 0

    async def act(job_id: str) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    await each([str(number) for number in range(40)], act)
    assert most == 8
