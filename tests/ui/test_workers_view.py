"""The page of workers: who is shown, in which order, and how much of what they hold."""

from datetime import UTC, datetime

import pulse
from pulse_ui import tuning
from pulse_ui.workers import topics_of, workers_view

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def worker(name: str, *topics: str, held: int = 0, connected: bool = True) -> pulse.WorkerInfo:
    jobs = tuple(
        pulse.HeldJob(f"job-{number}", (topics or ("mail",))[0], 1, NOW, NOW)
        for number in range(min(held, 20))
    )
    return pulse.WorkerInfo(
        worker_id=name,
        topics=topics if connected else (),
        capacity=10 if connected else 0,
        connected_at=NOW if connected else None,
        server="vm:1" if connected else None,
        held_count=held,
        held=jobs,
    )


def test_workers_that_are_gone_come_first_and_are_not_counted_as_used() -> None:
    force = workers_view([worker("a", "mail", held=4), worker("b", held=3, connected=False)])
    assert [member.worker.worker_id for member in force.members] == ["b", "a"]
    assert (force.connected, force.gone, force.held, force.held_by_gone) == (1, 1, 4, 3)
    assert force.percent_used == 40


def test_topic_chooses_who_asks_for_it_and_who_holds_a_job_of_it() -> None:
    workers = [worker("a", "mail"), worker("b", "photo"), worker("gone", "mail", held=1, connected=False)]
    force = workers_view(workers, "mail")
    assert {member.worker.worker_id for member in force.members} == {"a", "gone"}
    assert topics_of(workers) == ["mail", "photo"]


def test_worker_with_two_connections_has_two_anchors_and_its_jobs_count_once() -> None:
    force = workers_view([worker("a", "mail", held=2), worker("a", "mail", held=2)])
    assert [member.anchor for member in force.members] == ["worker-a", "worker-a--2"]
    assert (force.held, force.capacity) == (2, 20)


def test_with_many_workers_fewer_held_jobs_of_each_are_shown() -> None:
    (alone,) = workers_view([worker("a", "mail", held=50)]).members
    assert (len(alone.held), alone.held_left_out) == (tuning.HELD_SHOWN, 50 - tuning.HELD_SHOWN)
    crowd = workers_view([worker(f"w{number}", "mail", held=50) for number in range(500)])
    assert len(crowd.members) == tuning.WORKERS_SHOWN
    assert crowd.members_left_out == 500 - tuning.WORKERS_SHOWN
    assert {len(member.held) for member in crowd.members} == {tuning.HELD_SHOWN_AT_LEAST}


def test_more_jobs_than_slots_fill_the_bar() -> None:
    (member,) = workers_view([worker("a", "mail", held=15)]).members
    assert member.percent_used == 100
    assert workers_view([]).percent_used == 0
