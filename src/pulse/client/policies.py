"""The verbs for the policies of topics: how their jobs run, and how long finished ones are kept."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal

from pulse.checks import check_duration, message
from pulse.client.caller import Caller
from pulse.client.filters import names_of
from pulse.errors import InvalidArgument
from pulse.models.policies import Backoff, Keep, TopicPolicies, TopicPolicy, topic_policies, topic_policy
from pulse.v1 import pulse_pb2 as pb


class PolicyVerbs:
    """The verbs of a `Pulse` for the policies of topics."""

    _caller: Caller

    async def set_topic_policy(
        self,
        topic: str,
        *,
        keep_completed: Keep | None = None,
        keep_canceled: Keep | None = None,
        keep_dead_lettered: Keep | None = None,
        max_attempts: int | Literal["default"] | None = None,
        backoff: Backoff | Literal["default"] | None = None,
        attempt_timeout: timedelta | Literal["default"] | None = None,
        max_crashes: int | Literal["default"] | None = None,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> TopicPolicy:
        """Change the policy of a topic. Returns the new policy.

        The first three set how long finished jobs are kept: a timedelta from a minute to 3,650 days, or
        "forever". `max_attempts` applies to jobs that are submitted without their own. `backoff`
        has the delays between attempts. `attempt_timeout` ends one attempt. After `max_crashes`
        lost leases a job is a dead letter. These four override the values that a worker declares in
        code.

        "default" removes an entry: the value that a worker declares applies, or else the setting of
        the servers. Entries that are not given do not change. The topic need not have jobs.

        A shorter retention deletes after a grace time, an hour by default: `TopicPolicy.shorter_from`.
        Setting the longer one again before that loses nothing.
        """
        retention = {
            "completed": _keep("keep_completed", keep_completed),
            "canceled": _keep("keep_canceled", keep_canceled),
            "dead_lettered": _keep("keep_dead_lettered", keep_dead_lettered),
        }
        given = {field: keep for field, keep in retention.items() if keep is not None}
        run, returned = _run(max_attempts, backoff, attempt_timeout, max_crashes)
        request = message(
            pb.SetTopicPolicyRequest,
            topic=topic,
            retention=message(pb.Retention, **given) if given else None,
            run=run,
            returned=returned,
            reason=reason,
        )
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
                return topic_policies(found, response.server, response.server_run)


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


def _run(
    max_attempts: object, backoff: object, attempt_timeout: object, max_crashes: object
) -> tuple[pb.RunPolicy | None, list[str]]:
    """Return the entries to set, and the names of the entries to remove."""
    given = {
        "max_attempts": max_attempts,
        "backoff": backoff,
        "timeout": attempt_timeout,
        "max_crashes": max_crashes,
    }
    returned = [name for name, value in given.items() if value == "default"]
    entries: dict[str, Any] = {
        name: value for name, value in given.items() if value is not None and name not in returned
    }
    for name in ("max_attempts", "max_crashes"):
        if name in entries and (not isinstance(entries[name], int) or isinstance(entries[name], bool)):
            raise InvalidArgument(
                f'{name} has to be a whole number or "default", but {entries[name]!r} was given.'
            )
    if "timeout" in entries:
        check_duration("attempt_timeout", entries["timeout"])
    if "backoff" in entries:
        entries["backoff"] = _backoff(entries["backoff"])
    return message(pb.RunPolicy, **entries) if entries else None, returned


def _backoff(backoff: object) -> pb.Backoff:
    if not isinstance(backoff, Backoff):
        raise InvalidArgument(
            f'backoff has to be a pulse.Backoff(…) or "default", but {backoff!r} was given.'
        )
    return message(
        pb.Backoff,
        first=backoff.first,
        factor=backoff.factor,
        longest=backoff.longest,
        jitter=backoff.jitter,
    )
