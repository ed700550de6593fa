"""Jobs of one lane: listed, counted and changed, and never those of other lanes."""

from __future__ import annotations

import pytest

import pulse
from tests.rows import each_row
from tests.sdk.fake_pulsed import FakePulsed
from tests.transport.pulse_server_under_test import ServerUnderTest


async def test_jobs_of_a_lane_are_listed_counted_and_canceled(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        ids = {lane: (await p.enqueue("mail", {}, lane=lane)).id for lane in ("a", "b")}
        await p.enqueue("mail", {})
        await p.enqueue("other", {}, lane="a")
        assert [job.id for job in await p.list_jobs(topic="mail", lane="a")] == [ids["a"]]
        assert (await p.count_jobs(topic="mail", lane="a")).count == 1
        assert [done async for done in p.cancel_matching(topic="mail", lane="a")] == [1]
        assert (await p.get_job(ids["a"])).status == "CANCELED"
        assert (await p.count_jobs()).count == 3


@each_row("topic", [None, "mail"])
async def test_lane_without_a_topic_or_without_a_name_is_refused(p: pulse.Pulse, topic: str | None) -> None:
    with pytest.raises(pulse.InvalidArgument, match="lane"):
        await p.cancel_batch(topic=topic, lane="" if topic else "a")


async def test_filter_with_an_unknown_name_or_a_list_for_one_value_is_refused(p: pulse.Pulse) -> None:
    for verb in (p.list_jobs, p.count_jobs, p.cancel_batch, p.retry_batch):
        with pytest.raises(
            pulse.InvalidArgument, match=r"no option 'stat'\. Its options are before, .*status"
        ):
            await verb(stat="PENDING")  # type: ignore[operator]
        with pytest.raises(pulse.InvalidArgument, match=r"status has to be a string, .* statuses takes"):
            await verb(status=["PENDING"])  # type: ignore[operator]
        with pytest.raises(pulse.InvalidArgument, match=r"topic has to be a string, .* topics takes"):
            await verb(topic=["mail"])  # type: ignore[operator]


async def test_server_that_does_not_know_lanes_changes_nothing(fake: FakePulsed, p: pulse.Pulse) -> None:
    """It would take the filter for one of the whole topic."""
    for act in (p.cancel_batch, p.delete_batch, p.retry_batch, p.count_jobs):
        with pytest.raises(pulse.PulseError, match="does not know this call"):
            await act(topic="mail", lane="a")
    with pytest.raises(pulse.PulseError, match="does not know this call"):
        await p.prioritize_batch(5, topic="mail", lane="a")
