"""Workers may name many topics. Their memory is bounded over all workers. ADR-0038"""

from datetime import timedelta

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.bounds import MAX_TOPICS_PER_WORKER
from pulse_server.base.errors import ResourceExhausted
from pulse_server.dispatch.roster import TOPICS_OF_WORKERS, Roster, Topic
from pulse_server.dispatch.workers import Backlog, Session
from tests.fakes.wakeups import FakeWakeupLine
from tests.transport.pulse_server_under_test import ServerUnderTest

FULL = TOPICS_OF_WORKERS // MAX_TOPICS_PER_WORKER


def a_roster() -> Roster:
    return Roster(timedelta(seconds=30), FakeWakeupLine())


def a_session(number: int, *, set_number: int | None = None, count: int = MAX_TOPICS_PER_WORKER) -> Session:
    """A worker with its own topics, or with a set that others share."""
    owner = number if set_number is None else set_number
    topics = frozenset(f"{'t' * 200}-{owner}-{topic}" for topic in range(count))
    return Session(f"w{number}", topics, 10, speaks_batches=True, run_id="", backlog=Backlog(lambda: None))


async def test_topics_of_all_workers_together_are_bounded() -> None:
    roster = a_roster()
    sessions = [a_session(number) for number in range(FULL)]
    for session in sessions:
        roster.add(session, [])

    with pytest.raises(ResourceExhausted, match="share the same topics, name fewer, or connect to another"):
        roster.add(a_session(FULL, count=1), [])
    assert len(roster.sessions) == FULL

    roster.remove(sessions[0])
    roster.add(a_session(FULL), [])
    assert len(roster.sessions) == FULL


async def test_workers_that_share_their_topics_count_once() -> None:
    roster = a_roster()

    for number in range(2 * FULL):
        roster.add(a_session(number, set_number=0), [])

    (group,) = roster.groups
    assert len(group.sessions) == 2 * FULL
    assert all(session.topics is group.topics for session in roster.sessions)


async def test_worker_that_comes_back_is_let_in_however_full_the_server_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulse_server.dispatch.roster.TOPICS_OF_WORKERS", 10)
    roster = a_roster()
    roster.add(a_session(1, count=10), [])

    roster.add(a_session(1, count=10), [])
    roster.add(a_session(1, count=10), [])

    assert len(roster.sessions) == 1


async def test_refused_worker_changes_nothing_for_its_stream_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.dispatch.roster.TOPICS_OF_WORKERS", 10)
    roster = a_roster()
    before = a_session(1, count=10)
    roster.add(before, [])

    with pytest.raises(ResourceExhausted):
        roster.add(a_session(1, count=11), [])

    assert roster.sessions == [before]
    assert not before.is_closing


def test_what_is_kept_for_each_topic_has_no_dictionary_of_its_own() -> None:
    topic = Topic()

    assert not hasattr(topic, "__dict__")
    assert not hasattr(topic.groups, "__dict__")


async def test_refused_stream_is_answered_with_a_sentence(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.dispatch.roster.TOPICS_OF_WORKERS", 2)
    request = pb.StreamJobsRequest(worker_id="w1", topics=["a", "b", "c"], capacity=1)

    with pytest.raises(grpc.aio.AioRpcError, match="are allowed at the most") as refused:
        async for _ in server.stub.StreamJobs(request, timeout=5):
            pass

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
