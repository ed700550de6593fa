"""The pause switch as a replica remembers it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NoReturn

import pytest

from pulse_server.base.errors import Unavailable, WorkerNotFound
from pulse_server.dispatch.rules import QUIET, RUNNING, STOPPING, ConnectedWorker, DispatchState, Pause
from pulse_server.dispatch.service import PAUSED_TOPICS_SHOWN, Dispatch, Gate
from pulse_server.wakeups.watchers import Wakeup
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.dispatch import FakeSwitches, limit_topic
from tests.fakes.replica import Replica

TOPICS = frozenset({"mail", "image"})
AT_ONCE = timedelta(microseconds=1)


@dataclass
class Switchboard:
    """A replica's gate, and the control that turns its switches."""

    repo: FakeSwitches
    gate: Gate
    control: Dispatch


@pytest.fixture
def board(replica: Replica) -> Switchboard:
    repo, gate = replica.switches, replica.gate
    return Switchboard(repo, gate, Dispatch(repo, gate, replica.publisher, connections_of))


OLD, NEW = (
    ConnectedWorker(*("w", (), 1, datetime.now(UTC)), run_id=run, can_stop=run == "new")
    for run in ("old", "new")
)
CONNECTED = {"old": [OLD], "new": [NEW], "both": [OLD, NEW]}


async def connections_of(worker_id: str) -> list[ConnectedWorker]:
    return CONNECTED.get(worker_id, [])


async def test_gate_is_as_the_database_says_once_it_is_read(board: Switchboard) -> None:
    await board.repo.pause_everything("maintenance")
    assert board.gate.state.open_topics(TOPICS) == TOPICS, "it was not read yet"

    await board.gate.refresh()

    assert board.gate.state.open_topics(TOPICS) == frozenset()


async def test_gate_that_cannot_be_read_at_the_start_is_an_error(board: Switchboard) -> None:
    board.repo.is_away = True

    with pytest.raises(Unavailable):
        await board.gate.refresh()


@pytest.mark.parametrize("paused", [True, False], ids=["paused", "open"])
async def test_lost_database_keeps_the_gate_as_it_was(board: Switchboard, paused: bool) -> None:
    if paused:
        await board.control.pause(None, "maintenance")
    before = board.gate.state
    board.repo.is_away = True
    board.repo.state = DispatchState()

    for _ in range(3):
        with pytest.raises(Unavailable):
            await board.gate.refresh()

    assert board.gate.state == before
    assert (board.gate.state.open_topics(TOPICS) == TOPICS) is not paused


async def test_outage_does_not_end_the_refreshing_and_the_truth_is_learned_after_it(replica: Replica) -> None:
    repo = replica.switches
    gate = Gate(repo, replica.roster, replica.claims, interval=AT_ONCE)
    running = asyncio.create_task(gate.loop.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await gate.loop.wait_for_ticks(1)
        repo.is_away = True
        await gate.loop.wait_for_ticks(3)
        repo.is_away = False
        await repo.pause_everything("meanwhile")
        await gate.loop.wait_for_ticks(2)
        gate.loop.stop()
        await running

    assert gate.state.open_topics(TOPICS) == frozenset()


async def test_pause_of_a_topic_holds_that_one_only(board: Switchboard) -> None:
    await board.control.pause("mail", "quota")

    assert board.gate.state.open_topics(TOPICS) == {"image"}
    assert board.gate.state.open_topics(frozenset({"mail"})) == frozenset()


async def test_resume_of_a_topic_does_not_lift_the_pause_of_everything(board: Switchboard) -> None:
    await board.control.pause(None, "all")
    await board.control.pause("mail", "one")

    await board.control.resume("mail")
    assert board.gate.state.open_topics(TOPICS) == frozenset()

    await board.control.resume(None)
    assert board.gate.state.open_topics(TOPICS) == TOPICS


async def test_resume_of_everything_does_not_lift_the_pause_of_a_topic(board: Switchboard) -> None:
    await board.control.pause(None, "all")
    await board.control.pause("mail", "one")

    await board.control.resume(None)

    assert board.gate.state.open_topics(TOPICS) == {"image"}


async def test_change_of_a_switch_updates_the_gate_here_and_notifies_the_others(
    board: Switchboard, replica: Replica
) -> None:
    await board.control.pause(None, "maintenance")
    assert board.gate.state == board.repo.state
    assert replica.line.gate_changes == 1

    await board.control.resume(None)
    assert board.gate.state == board.repo.state == DispatchState()
    assert replica.line.gate_changes == 2


async def test_worker_is_quiet_here_and_at_the_servers_that_are_notified(
    board: Switchboard, replica: Replica
) -> None:
    assert await board.control.set_worker_state("both", QUIET, "memory grows", "ann")
    states = board.gate.state.workers
    assert states.keys() == {("both", "old"), ("both", "new")}
    assert {(state.name, state.reason, state.set_by) for state in states.values()} == {
        (QUIET, "memory grows", "ann")
    }
    assert replica.line.gate_changes == 1

    assert await board.control.set_worker_state("both", RUNNING, "")
    assert not board.gate.state.workers
    assert replica.line.gate_changes == 2


async def test_process_whose_client_cannot_stop_is_quiet_instead(board: Switchboard) -> None:
    assert await board.control.set_worker_state("new", STOPPING, "")
    assert not await board.control.set_worker_state("both", STOPPING, "")
    names = {process: state.name for process, state in board.gate.state.workers.items()}
    assert names == {("new", "new"): STOPPING, ("both", "old"): QUIET, ("both", "new"): STOPPING}


async def test_worker_that_is_not_connected_can_only_be_resumed(board: Switchboard) -> None:
    for name in (QUIET, STOPPING, RUNNING):
        with pytest.raises(WorkerNotFound, match="No worker 'gone' is connected"):
            await board.control.set_worker_state("gone", name, "")
    await board.repo.set_worker_state("gone", {"run": QUIET}, "")
    assert await board.control.set_worker_state("gone", RUNNING, "")


@pytest.mark.parametrize("topic", [None, "mail"])
async def test_switch_that_could_not_be_stored_is_not_turned(
    board: Switchboard, replica: Replica, topic: str | None
) -> None:
    board.repo.is_away = True

    with pytest.raises(Unavailable):
        await board.control.pause(topic, "")

    assert board.gate.state == DispatchState()
    assert replica.line.gate_changes == 0


@pytest.mark.parametrize(("topic", "woken"), [("mail", [{"mail"}]), (None, [None])])
async def test_resume_wakes_what_it_resumes_once_and_a_pause_wakes_nothing(
    board: Switchboard, replica: Replica, topic: str | None, woken: list[set[str] | None]
) -> None:
    await board.gate.refresh()
    await board.control.pause("image", "for good")
    await board.control.pause(topic, "quota")
    await board.gate.refresh()
    assert replica.roster.woken == []

    await board.control.resume(topic)
    await board.gate.refresh()

    assert replica.roster.woken == woken
    assert board.gate.state == board.repo.state


async def test_topic_that_gets_a_flow_policy_is_limited_and_wakes_dispatch(
    board: Switchboard, replica: Replica
) -> None:
    limit_topic(board.repo, "mail")
    await board.gate.refresh()

    assert replica.roster.woken == [{"mail"}]
    assert "mail" in replica.roster.limited.pools
    assert board.gate.state.open_topics(TOPICS) == TOPICS, "it is not paused"
    assert replica.roster.plain_topics(TOPICS) == {"image"}


async def test_status_is_what_the_database_says_and_not_what_is_remembered(board: Switchboard) -> None:
    await board.repo.pause_topic("mail", "elsewhere")

    assert (await board.control.status()).topics.keys() == {"mail"}


async def test_wakeup_of_another_server_asks_for_a_refresh(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(replica.gate.loop, "nudge", lambda: asked.append(True))

    replica.line.deliver(Wakeup(frozenset({"mail"})))
    assert asked == []

    replica.line.deliver(Wakeup(gate_changed=True))
    assert asked == [True]


async def test_asking_about_few_topics_does_not_walk_all_that_are_paused() -> None:
    class NeverWalked(dict[str, Pause]):
        def keys(self) -> NoReturn:
            raise AssertionError("all paused topics were walked")

    paused = NeverWalked({f"topic-{number}": Pause("", datetime.now(UTC)) for number in range(10)})

    assert DispatchState(topics=paused).open_topics(frozenset({"mail", "topic-3"})) == {"mail"}


async def test_log_names_a_bounded_number_of_paused_topics(
    board: Switchboard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(PAUSED_TOPICS_SHOWN + 1):
        await board.repo.pause_topic(f"topic-{number}", "")
    await board.gate.refresh()
    (record,) = [record for record in caplog.records if record.message == "dispatch_gate"]

    assert len(record.__dict__["paused_topics"]) == PAUSED_TOPICS_SHOWN
    assert record.__dict__["paused_topic_count"] == PAUSED_TOPICS_SHOWN + 1
