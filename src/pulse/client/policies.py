"""The verbs for the policies of topics: how long their finished jobs are kept."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from pulse.client.caller import Caller
from pulse.client.filters import names_of
from pulse.errors import InvalidArgument
from pulse.models.policies import Keep, TopicPolicies, TopicPolicy, topic_policies, topic_policy
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.messages import message


class PolicyVerbs:
    """What a `Pulse` can do with the policies of topics."""

    _caller: Caller

    async def set_topic_policy(
        self,
        topic: str,
        *,
        keep_completed: Keep | None = None,
        keep_canceled: Keep | None = None,
        keep_dead_lettered: Keep | None = None,
        timeout: timedelta | None = None,
    ) -> TopicPolicy:
        """Set how long the finished jobs of a topic are kept. Returns its policy as it is then.

        Give a timedelta from a minute to 3,650 days, "forever", or "default" to return to the settings of the
        servers. What is not given stays as it is. The topic need not have jobs.
        """
        retention = {
            "completed": _keep("keep_completed", keep_completed),
            "canceled": _keep("keep_canceled", keep_canceled),
            "dead_lettered": _keep("keep_dead_lettered", keep_dead_lettered),
        }
        given = {field: keep for field, keep in retention.items() if keep is not None}
        request = message(pb.SetTopicPolicyRequest, topic=topic, retention=message(pb.Retention, **given))
        response = await self._caller.call(lambda stub: stub.SetTopicPolicy, request, timeout)
        return topic_policy(response.policy)

    async def topic_policies(
        self, *, names: Iterable[str] = (), timeout: timedelta | None = None
    ) -> TopicPolicies:
        """Return the topics that have a policy, by name, and the settings of the server for all others.

        `names` selects these topics; at most 1,000. `timeout` bounds each of the calls that this takes.
        """
        found: list[pb.TopicPolicy] = []
        topics, token = names_of("names", names), ""
        while True:
            request = message(pb.ListTopicPoliciesRequest, topics=topics, page_token=token)
            response = await self._caller.call(lambda stub: stub.ListTopicPolicies, request, timeout)
            found += response.policies
            if not (token := response.next_page_token):
                return topic_policies(found, response.server)


def _keep(name: str, keep: Keep | None) -> pb.Keep | None:
    match keep:
        case None:
            return None
        case "forever":
            return pb.Keep(forever=True)
        case "default":
            return pb.Keep()
        case timedelta():
            return message(pb.Keep, duration=keep)
    if isinstance(keep, int | float) and not isinstance(keep, bool):
        raise InvalidArgument(f"{name} has to be a timedelta: write timedelta(seconds={keep}).")
    raise InvalidArgument(f'{name} has to be a timedelta, "forever" or "default", but {keep!r} was given.')
