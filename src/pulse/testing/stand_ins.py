"""The parts of a server that a kit does without: a database's clock, workers, limits, and the network."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NoReturn

import grpc
import grpc.aio

from pulse.wire.failures import FROM_PULSED
from pulse_server.dispatch.roster import Roster
from pulse_server.domain.jobs import Claim
from pulse_server.domain.limit_owners import LimitOwners
from pulse_server.domain.limits import HeldUntil, LimitPolicy
from pulse_server.memory.clock import ControlledClock
from pulse_server.repos.wakeups import WakeupLine
from pulse_server.service.limit_policies import LimitPolicies


class KitClock(ControlledClock):
    """Starts at the real time. Only `advance` moves it, and each reading by a microsecond.

    A `run_at` moves it too: the application computes one from the real time, which is later than the start.
    """

    def __init__(self) -> None:
        self._now = datetime.now(UTC)
        self._is_apart = False

    @property
    def time(self) -> datetime:
        """The time, without a reading."""
        return self._now

    def move_to(self, moment: datetime) -> None:
        """Move to this time, unless it is past."""
        self._now = max(self._now, moment)
        self._is_apart = True

    def catch_up(self) -> None:
        """Move to the real time, unless the test has moved the clock away from it."""
        if not self._is_apart:
            self._now = max(self._now, datetime.now(UTC))


class KitRoster(Roster):
    """The roster of a server without workers. The attempt that runs is stopped if its job is canceled."""

    def __init__(self, lease: timedelta, line: WakeupLine) -> None:
        super().__init__(lease, line)
        self._stops: dict[str, Callable[[], None]] = {}

    @contextlib.contextmanager
    def holding(self, job_id: str, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` if the claim of this job ends while the block runs."""
        self._stops[job_id] = stop
        try:
            yield
        finally:
            del self._stops[job_id]

    def stop_claims(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            if (stop := self._stops.get(claim.job_id)) is not None:
                stop()


class NoWorkers:
    """The hub: no worker is connected, so every job waits."""

    async def hand_over(self, _jobs: object) -> None:
        return None


class UnappliedLimits(LimitPolicies):
    """Limits are accepted and not applied: jobs of a test run one after the other."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        """The topics that have limits. Their handlers learn the lane of a job."""
        self.pending = {}

    async def declare(self, declared: Mapping[str, LimitPolicy], by: str) -> None:
        self.topics.update(topic for topic, policy in declared.items() if policy != LimitPolicy())

    async def check(self, topic: str, policy: LimitPolicy, returned: Collection[str]) -> None:
        self.topics.add(topic)

    async def put_in_force(self) -> None:
        pass

    async def owners(self, topics: Collection[str]) -> Mapping[str, LimitOwners]:
        return {}


class UnappliedHolds:
    """Topics with limits can be held, which has no effect. The state of limits needs a real server."""

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics

    async def hold(self, topic: str, _span: timedelta, *, by_operator: bool) -> HeldUntil | None:
        return HeldUntil(None) if topic in self._topics else None

    def __getattr__(self, name: str) -> NoReturn:
        # The methods have the names of their RPCs: list_limits, list_lanes, set_lane.
        raise not_in_kit(name.title().replace("_", ""))


class CallContext:
    """The context of a call. The caller is this process, on a server without users."""

    def peer(self) -> str:
        return "unix:pulse-kit"

    def invocation_metadata(self) -> tuple[()]:
        return ()


def rpc_error(code: grpc.StatusCode, sentence: str) -> grpc.aio.AioRpcError:
    """Return the error that a stub raises for an answer of pulsed."""
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata((FROM_PULSED, "1")), details=sentence
    )


def not_in_kit(method: str) -> grpc.aio.AioRpcError:
    """Return the error for an RPC that the kit does not have."""
    return rpc_error(
        grpc.StatusCode.UNIMPLEMENTED,
        f"The testing kit has no {method}, which needs a real server: use the fixture pulse_server.",
    )
