"""What an operator sets of a schedule wins over what code declares, until it is handed back."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.refusals import refusal_of
from tests.transport.schedule_calls import FAR, get, make, update

NIGHTLY: dict[str, Any] = {"name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Paris"}
# The entries of a schedule: what code declares, another declaration, and what an operator sets.
CRON: dict[str, tuple[Any, Any, Any]] = {
    "cron": ("0 3 * * *", "0 4 * * *", "30 5 * * 1-5"),
    "time_zone": ("Europe/Paris", "Asia/Tokyo", "America/New_York"),
    "topic": ("mail", "post", "urgent"),
    "payload": (b"1", b"2", b"\0\xff"),
    "priority": (1, 2, 3),
    "max_attempts": (4, 5, 6),
    "catch_up": ("one", "skip", "all"),
    "start_within": (Duration(seconds=60), Duration(seconds=90), Duration(seconds=120, nanos=5000)),
    "overlap": ("allow", "skip", "queue"),
}


async def declare(server: ServerUnderTest, **fields: Any) -> pb.ScheduleView:
    return await make(server, **({"replace": True} | NIGHTLY | fields))


def overridden(view: pb.ScheduleView) -> list[str]:
    return [override.entry for override in view.overrides]


async def test_next_start_of_a_worker_does_not_undo_what_an_operator_set(server: ServerUnderTest) -> None:
    made = await declare(server)
    changed = await update(server, made.schedule_id, cron="0 4 * * *")

    assert await declare(server) == changed
    assert (changed.cron, changed.time_zone) == ("0 4 * * *", "Europe/Paris")
    assert (changed.declared, overridden(changed)) == (True, ["cron"])
    assert (changed.declares.cron, changed.declares.time_zone) == ("0 3 * * *", "Europe/Paris")
    assert await get(server, made.schedule_id) == changed


async def test_each_entry_has_an_owner_of_its_own(server: ServerUnderTest) -> None:
    first, second, own = ({name: values[at] for name, values in CRON.items()} for at in range(3))
    made = await declare(server, **first)
    for entry, value in own.items():
        changed = await update(server, made.schedule_id, **{entry: value})
        assert overridden(changed) == [entry]
        declared = await declare(server, **second)
        for name in CRON:
            expected = value if name == entry else second[name]
            assert getattr(declared, name) == expected, (entry, name)
            assert getattr(declared.declares, name) == second[name], (entry, name)

        back = await update(server, made.schedule_id, returned=[entry])
        assert (overridden(back), back.HasField("declares")) == ([], False)
        for name in CRON:
            assert getattr(back, name) == second[name], (entry, name)
        await declare(server, **first)


async def test_metadata_intervals_and_moments_are_entries_too(server: ServerUnderTest) -> None:
    for spec, other in (
        ({"every": Duration(seconds=60)}, {"every": Duration(seconds=90)}),
        ({"at": FAR}, {"at": type(FAR)(seconds=FAR.seconds + 60)}),
    ):
        ((entry, value),) = spec.items()
        ((_, set_value),) = other.items()
        declared = {"name": entry, "replace": True, "metadata": {"a": "b"}, **spec}
        made = await make(server, **declared)
        metadata = pb.Metadata(entries={"c": "d"})
        await update(server, made.schedule_id, metadata=metadata, **other)
        kept = await make(server, **declared)
        assert (getattr(kept, entry), getattr(kept.declares, entry)) == (set_value, value)
        assert (dict(kept.metadata), dict(kept.declares.metadata)) == ({"c": "d"}, {"a": "b"})
        assert overridden(kept) == [entry, "metadata"]
        back = await update(server, made.schedule_id, returned=["metadata", entry])
        assert (getattr(back, entry), dict(back.metadata)) == (value, {"a": "b"})


async def test_attempts_of_the_policy_are_handed_back(server: ServerUnderTest) -> None:
    made = await declare(server)
    assert (await update(server, made.schedule_id, max_attempts=3)).max_attempts == 3
    assert (await declare(server)).max_attempts == 3
    await update(server, made.schedule_id, returned=["max_attempts"])
    policy = pb.SetTopicRequest(topic="mail", entries=pb.TopicEntries(max_attempts=7))
    await server.stub.SetTopic(policy)
    assert (await get(server, made.schedule_id)).max_attempts == 7


async def test_limit_that_code_does_not_have_is_taken_away_when_it_is_handed_back(
    server: ServerUnderTest,
) -> None:
    made = await declare(server)
    await update(server, made.schedule_id, start_within=Duration(seconds=60))
    assert (await declare(server)).HasField("start_within")
    back = await update(server, made.schedule_id, returned=["start_within"])
    assert not back.HasField("start_within")


async def test_timetable_of_an_operator_keeps_its_cursor_when_code_declares_another(
    server: ServerUnderTest,
) -> None:
    made = await declare(server)
    changed = await update(server, made.schedule_id, cron="0 0 1 1 *")
    assert (await declare(server, cron="*/5 * * * *")).next_run_at == changed.next_run_at
    back = await update(server, made.schedule_id, returned=["cron"])
    assert back.cron == "*/5 * * * *"
    assert back.next_run_at.seconds < changed.next_run_at.seconds


async def test_two_workers_with_different_code_leave_the_entry_to_the_operator(
    server: ServerUnderTest,
) -> None:
    made = await declare(server)
    # Equal to what the second program declares: it stays the operator's all the same.
    await update(server, made.schedule_id, cron="0 4 * * *")
    for cron in ("0 4 * * *", "0 3 * * *") * 2:
        declared = await declare(server, cron=cron)
        assert (declared.cron, declared.declares.cron) == ("0 4 * * *", cron)


async def test_code_without_replace_finds_the_schedule_that_an_operator_changed(
    server: ServerUnderTest,
) -> None:
    made = await declare(server)
    changed = await update(server, made.schedule_id, topic="urgent")
    assert await declare(server, replace=False) == changed
    assert await declare(server, replace=False, topic="urgent") == changed
    refused = await refusal_of(declare(server, replace=False, topic="third"))
    assert refused.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_pause_is_the_operators_alone(server: ServerUnderTest) -> None:
    made = await declare(server)
    await server.stub.PauseSchedule(pb.PauseScheduleRequest(schedule_id=made.schedule_id))
    assert (await declare(server)).paused
    assert (await declare(server, topic="other")).paused


async def test_zone_of_an_operator_holds_though_the_expression_of_the_code_names_another(
    server: ServerUnderTest,
) -> None:
    made = await declare(server)
    await update(server, made.schedule_id, time_zone="UTC")
    declared = await declare(server, cron="TZ=Asia/Tokyo 0 9 * * *", time_zone="")
    assert (declared.cron, declared.time_zone) == ("0 9 * * *", "UTC")
    assert declared.declares.time_zone == "Asia/Tokyo"
    assert await declare(server, cron="TZ=Asia/Tokyo 0 9 * * *", time_zone="") == declared
    back = await update(server, made.schedule_id, returned=["time_zone"])
    assert (back.cron, back.time_zone) == ("0 9 * * *", "Asia/Tokyo")


async def test_expression_of_an_operator_with_its_zone_takes_both_entries(server: ServerUnderTest) -> None:
    made = await declare(server)
    changed = await update(server, made.schedule_id, cron="TZ=Asia/Tokyo 0 9 * * *")
    assert overridden(changed) == ["cron", "time_zone"]
    assert await declare(server) == changed
    back = await update(server, made.schedule_id, returned=["time_zone"])
    assert (back.cron, back.time_zone) == ("0 9 * * *", "Europe/Paris")


async def test_schedule_that_no_code_declares_has_no_overrides(server: ServerUnderTest) -> None:
    made = await declare(server, replace=False)
    changed = await update(server, made.schedule_id, topic="other")
    assert (changed.declared, overridden(changed)) == (False, [])
    # Code that declares it later takes it over as a whole.
    assert ((await declare(server)).topic, (await get(server, made.schedule_id)).declared) == ("mail", True)


async def test_lists_leave_payloads_out_and_show_what_operators_set(server: ServerUnderTest) -> None:
    made = await declare(server, payload=b"1")
    await update(server, made.schedule_id, payload=b"2")
    (listed,) = (await server.stub.ListSchedules(pb.ListSchedulesRequest(limit=5))).schedules
    assert (listed.payload, listed.declares.payload, overridden(listed)) == (b"", b"", ["payload"])
    whole = await get(server, made.schedule_id)
    assert (whole.payload, whole.declares.payload) == (b"2", b"1")


async def test_hand_back_is_refused_with_a_sentence(server: ServerUnderTest) -> None:
    declared, other = await declare(server), await make(server, name="other")
    for schedule, fields, sentence in (
        (declared, {"returned": ["paused"]}, "names 'paused'; the entries of a schedule are at, every, cron"),
        (declared, {"returned": ["topic"], "topic": "a"}, "names 'topic', which the request also sets"),
        (other, {"returned": ["topic"]}, "No code declares other: set the entry instead"),
    ):
        refused = await refusal_of(update(server, schedule.schedule_id, **fields))
        assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert sentence in (refused.details() or "")
