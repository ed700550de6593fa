"""SetTopicPolicy and ListTopicPolicies: how long the finished jobs of a topic are kept."""

from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.authorized import USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

DAY = 24 * 60 * 60
FOREVER = pb.Keep(forever=True)


def keep(seconds: int) -> pb.Keep:
    return pb.Keep(duration=Duration(seconds=seconds))


async def change(stub: Any, topic: str, **retention: pb.Keep) -> pb.TopicPolicy:
    request = pb.SetTopicPolicyRequest(topic=topic, retention=pb.Retention(**retention))
    return (await stub.SetTopicPolicy(request)).policy  # type: ignore[no-any-return]


async def listed(stub: Any, **fields: Any) -> pb.ListTopicPoliciesResponse:
    answer: pb.ListTopicPoliciesResponse = await stub.ListTopicPolicies(pb.ListTopicPoliciesRequest(**fields))
    return answer


async def test_topic_without_policy_has_the_settings_of_the_server(server: ServerUnderTest) -> None:
    answer = await listed(server.stub)

    assert not answer.policies
    assert answer.server == pb.Retention(
        completed=keep(7 * DAY), canceled=keep(7 * DAY), dead_lettered=keep(30 * DAY)
    )


async def test_policy_of_a_topic_without_jobs_is_stored(server: ServerUnderTest) -> None:
    await change(server.stub, "audit", completed=FOREVER, dead_lettered=keep(DAY))

    (policy,) = (await listed(server.stub)).policies
    assert policy.topic == "audit"
    assert policy.retention == pb.Retention(completed=FOREVER, dead_lettered=keep(DAY))
    assert policy.HasField("set_at")


async def test_change_leaves_what_it_does_not_name(server: ServerUnderTest) -> None:
    await change(server.stub, "audit", completed=keep(DAY))
    policy = await change(server.stub, "audit", canceled=keep(60))

    assert policy.retention == pb.Retention(completed=keep(DAY), canceled=keep(60))


async def test_policy_that_says_nothing_any_more_is_gone(server: ServerUnderTest) -> None:
    # Each is shorter than the server's: without them jobs are kept for longer, so there is no grace time.
    await change(server.stub, "audit", completed=keep(DAY), canceled=keep(DAY))
    assert (await change(server.stub, "audit", canceled=pb.Keep())).HasField("set_at")
    policy = await change(server.stub, "audit", completed=pb.Keep())

    assert policy.retention == pb.Retention()
    assert not policy.HasField("set_at")
    assert not (await listed(server.stub)).policies


async def test_policies_come_in_pages_by_topic(server: ServerUnderTest) -> None:
    for topic in ("c", "a", "b"):
        await change(server.stub, topic, completed=FOREVER)

    first = await listed(server.stub, page_size=2)
    rest = await listed(server.stub, page_size=2, page_token=first.next_page_token)

    assert [[policy.topic for policy in page.policies] for page in (first, rest)] == [["a", "b"], ["c"]]
    assert rest.next_page_token == ""
    assert [policy.topic for policy in (await listed(server.stub, topics=["b", "z"])).policies] == ["b"]


async def test_policy_shows_the_user_who_set_it_last(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        admin, operator = caller(server.channel, "admin"), caller(server.channel, "operator")
        await change(admin, "audit", completed=FOREVER)
        assert (await change(operator, "audit", canceled=FOREVER)).set_by == "operator"
        (policy,) = (await listed(caller(server.channel, "viewer"))).policies
        assert policy.set_by == "operator"


@each_row(
    "fields, text",
    [
        ({"topic": "", "retention": pb.Retention(completed=FOREVER)}, "topic is empty"),
        ({"topic": "a b", "retention": pb.Retention(completed=FOREVER)}, "topic"),
        ({"topic": "mail"}, "changes nothing"),
        ({"topic": "mail", "retention": pb.Retention()}, "changes nothing"),
        ({"topic": "mail", "retention": pb.Retention(completed=keep(59))}, "below a minute"),
        ({"topic": "mail", "retention": pb.Retention(canceled=keep(-DAY))}, "below a minute"),
        ({"topic": "mail", "retention": pb.Retention(canceled=keep(0))}, "below a minute"),
        ({"topic": "mail", "retention": pb.Retention(dead_lettered=keep(3651 * DAY))}, "keep them forever"),
        ({"topic": "mail", "retention": pb.Retention(completed=keep(2**62))}, "not a valid duration"),
        ({"topic": "mail", "retention": pb.Retention(completed=pb.Keep(forever=False))}, "is false"),
    ],
)
async def test_policy_that_cannot_hold_is_refused_with_the_reason(
    server: ServerUnderTest, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.SetTopicPolicy(pb.SetTopicPolicyRequest(**fields))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")


async def test_longest_and_shortest_retention_are_accepted(server: ServerUnderTest) -> None:
    longest, shortest = timedelta(days=3650), timedelta(minutes=1)
    policy = await change(
        server.stub, "mail", completed=keep(int(longest.total_seconds())), canceled=keep(60)
    )

    assert policy.retention.completed.duration.ToTimedelta() == longest
    assert policy.retention.canceled.duration.ToTimedelta() == shortest


async def test_unknown_page_token_is_refused(server: ServerUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await listed(server.stub, page_token="%%%")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
