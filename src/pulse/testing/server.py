"""pulsed without a network and a database: its RPCs, services and checks over the store in memory.

An RPC is pulsed's own class or it is refused: what pulsed decides in Python is decided by the same code here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Coroutine
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc
import grpc.aio

from pulse.errors import error_for_code
from pulse.models.jobs import JobInfo, job_info
from pulse.testing.stand_ins import (
    CallContext,
    KitClock,
    KitRoster,
    NoWorkers,
    UnappliedHolds,
    UnappliedLimits,
    not_in_kit,
    rpc_error,
)
from pulse.v1 import pulse_pb2 as pb
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.errors import PulseError
from pulse_server.domain.jobs import ClaimedJob, Job
from pulse_server.domain.slots import Slots
from pulse_server.memory.jobs import InMemoryJobRepo
from pulse_server.memory.schedules import InMemoryScheduleRepo
from pulse_server.memory.steps import InMemoryStepRepo
from pulse_server.memory.workflows import InMemoryWorkflowRepo
from pulse_server.repos.wakeups import LoneWakeupLine
from pulse_server.service.group_commit import EachAlone
from pulse_server.service.jobs import Jobs
from pulse_server.service.limits import LimitsOfTopics
from pulse_server.service.own_topics import OwnTopics
from pulse_server.service.policies import Policies
from pulse_server.service.promoter import Promoter
from pulse_server.service.reports import Reports
from pulse_server.service.run_policies import RunPolicies
from pulse_server.service.scheduler import Scheduler
from pulse_server.service.schedules import Schedules
from pulse_server.service.selections import Selections
from pulse_server.service.settler import Settler
from pulse_server.service.start_limits import StartLimits
from pulse_server.service.steps import Steps
from pulse_server.service.submissions import Submissions
from pulse_server.service.workflow_publisher import WorkflowPublisher
from pulse_server.service.workflows import Workflows
from pulse_server.settings import Settings
from pulse_server.telemetry.metrics import Metrics
from pulse_server.transport.grpc import convert_jobs
from pulse_server.transport.grpc.access import AccessRpcs
from pulse_server.transport.grpc.boundary import status_of
from pulse_server.transport.grpc.callers import Callers
from pulse_server.transport.grpc.change_log import ChangeLog
from pulse_server.transport.grpc.deliveries import DeliveryEncoder
from pulse_server.transport.grpc.jobs import JobRpcs
from pulse_server.transport.grpc.limits import LimitRpcs
from pulse_server.transport.grpc.policies import PolicyRpcs
from pulse_server.transport.grpc.reports import ReportRpcs
from pulse_server.transport.grpc.schedules import ScheduleRpcs
from pulse_server.transport.grpc.selections import SelectionRpcs
from pulse_server.transport.grpc.steps import StepRpcs
from pulse_server.transport.grpc.workflows import WorkflowRpcs
from pulse_server.watchers import Watchers

if TYPE_CHECKING:
    from pulse_server.dispatch.hub import Hub
    from pulse_server.repos.dispatch import LimitRepo

WORKER = "pulse-kit"
SETTINGS = Settings(grpc_address="", database_url=None)
# No lease ends in a test, however far the clock is moved.
LEASE = timedelta(days=36500)
NEVER = timedelta(days=1)

Answer = TypeVar("Answer")


class KitServer:
    """One server for each kit. Its calls end in the thread of the caller, one at a time."""

    def __init__(self, clock: KitClock | None = None) -> None:
        self.lock = threading.RLock()
        self.clock = clock or KitClock()
        self.repo = repo = InMemoryJobRepo(self.clock, SETTINGS.run)
        line = LoneWakeupLine()
        self.roster = roster = KitRoster(SETTINGS.lease_ttl, line)
        metrics, watchers = Metrics(), Watchers(line)
        workflow_repo = InMemoryWorkflowRepo(repo)
        workflow_publisher = WorkflowPublisher(metrics, watchers, roster)
        self._settler = Settler(workflow_repo, workflow_publisher)
        publisher = Publisher(metrics, watchers, roster, line, None, self._settler.loop.nudge)
        self.policies = runs = RunPolicies(repo.policies, SETTINGS.run, interval=NEVER)
        self._encoder = DeliveryEncoder(runs)
        submissions = Submissions(repo, cast("Hub", NoWorkers()), publisher, grouping=EachAlone)
        steps = Steps(InMemoryStepRepo(repo), repo, publisher, SETTINGS.steps, grouping=EachAlone)
        reports = Reports(repo, publisher, steps.suspend, grouping=EachAlone)
        jobs = Jobs(repo, publisher)
        schedules = InMemoryScheduleRepo(repo)
        self._promoter = Promoter(repo, publisher, interval=NEVER)
        self._start_limits = StartLimits(repo, publisher)
        self._scheduler = Scheduler(schedules, publisher, interval=NEVER)
        workflows = Workflows(
            *(workflow_repo, repo, jobs, publisher, workflow_publisher, self._settler),
            SETTINGS.max_workflow_jobs,
        )
        self._limits = UnappliedLimits()
        holds = cast("LimitRepo", UnappliedHolds(self._limits.topics))
        callers, own_topics = Callers(None), OwnTopics(roster, _no_topics)
        self._rpcs: tuple[object, ...] = (
            JobRpcs(submissions, jobs, runs, ChangeLog(callers), lambda: None),
            SelectionRpcs(Selections(repo, jobs)),
            ReportRpcs(roster, reports, SETTINGS.max_result_bytes),
            StepRpcs(steps, callers),
            ScheduleRpcs(Schedules(schedules, publisher), jobs, runs, callers),
            PolicyRpcs(
                Policies(repo.policies, SETTINGS.retention.by_status, runs, self._limits, publisher),
                callers,
                own_topics,
            ),
            LimitRpcs(LimitsOfTopics(holds, self._limits, publisher), callers, own_topics),
            WorkflowRpcs(workflows, runs.max_attempts),
            AccessRpcs(callers),
        )

    # ------------------------------------------------------------ calls of clients

    def behavior(self, method: str) -> Callable[[Any, Any], Coroutine[Any, Any, Any]]:
        """Return pulsed's own method. Raises the error of an RPC that the kit does not have."""
        name = _snake_case(method)
        for rpcs in self._rpcs:
            if (found := getattr(rpcs, name, None)) is not None:
                behavior: Callable[[Any, Any], Coroutine[Any, Any, Any]] = found
                return behavior
        raise not_in_kit(method)

    def call(self, method: str, request: Any, context: Any = None) -> Any:
        """Answer a call in this thread. Raises the errors of gRPC."""
        self.note_time(request)
        # A copy, as over a network: the caller may change its request afterwards.
        copy = type(request).FromString(request.SerializeToString())
        try:
            return self.run(self.behavior(method)(copy, context or CallContext()))
        except PulseError as error:
            raise rpc_error(status_of(error), str(error)) from None

    def note_time(self, request: Any) -> None:
        """Let the clock catch up if the request names a time, which the application computed from now."""
        if _names_a_time(request):
            with self.lock:
                self.clock.catch_up()

    def ask(self, method: str, request: Any) -> Any:
        """Answer a call of the kit itself. Raises the errors of the SDK."""
        try:
            return self.call(method, request)
        except grpc.aio.AioRpcError as error:
            raise error_for_code(error.code().value[0], error.details() or "") from None

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Run code of the server to its end. It never waits: the store is in memory."""
        with self.lock:
            while True:
                try:
                    waits_for = coroutine.send(None)
                except StopIteration as ended:
                    answer: Answer = ended.value
                    return answer
                if waits_for is not None:
                    coroutine.close()
                    raise WouldWait

    # ------------------------------------------------------------ the worker's side

    def next_topic(self, topics: Collection[str]) -> str | None:
        """Return the topic of the job that comes first. None: no job of the topics is due."""
        with self.lock:
            self.make_ready()
            first = self.repo.first_ready(topics)
            return None if first is None else first.topic

    def claim(self, topics: Collection[str]) -> pb.JobAssignment | None:
        """Lease the first job of the topics that is ready, as pulsed orders jobs. None: there is none."""
        with self.lock:
            slots = Slots([WORKER], [False], [0])
            claimed = self.run(self.repo.claim_batch(topics, slots, LEASE))
            return self._assignment(claimed[0]) if claimed else None

    def claim_job(self, job_id: str, attempt: int | None) -> pb.JobAssignment:
        """Lease this job, due or not."""
        with self.lock:
            return self._assignment(self.repo.claim_job(job_id, WORKER, LEASE, attempt))

    def _assignment(self, claimed: ClaimedJob) -> pb.JobAssignment:
        if claimed.topic in self._limits.topics:
            claimed = claimed._replace(lane=self.repo.jobs[claimed.id].lane)
        data = self._encoder.encode_assignments([claimed])
        return pb.StreamJobsResponse.FromString(data).assignments[0]

    # ------------------------------------------------------------ the loops of a server

    def make_ready(self) -> timedelta | None:
        """Do what is due in the loops of pulsed, except schedules. Returns when the next job is due."""
        with self.lock:
            self.run(self._settler.tick())
            self.run(self._start_limits.tick())
            self.run(self._promoter.tick())
            return self.run(self.repo.promote_due(1)).next_due_in

    def fire_schedules(self) -> None:
        """Fire the schedules that are due."""
        self.run(self._scheduler.tick())

    def next_fire(self) -> datetime | None:
        """Return when the next schedule is due."""
        moments = [one.next_run_at for one in self.repo.schedules.values() if not one.paused]
        return min(moments, default=None)

    # ------------------------------------------------------------ reading

    def rows(self) -> list[Job]:
        """Return the jobs as stored, in the order in which they were enqueued."""
        with self.lock:
            return list(self.repo.jobs.values())

    def job(self, job_id: str) -> JobInfo | None:
        """Return the job as a client reads it."""
        with self.lock:
            row = self.repo.jobs.get(job_id)
            return None if row is None else view(row)


class WouldWait(Exception):
    """The call waits for something that only the test itself can bring about."""


def view(row: Job) -> JobInfo:
    """Return a job as a client reads it."""
    return job_info(convert_jobs.job_view(row))


async def _no_topics(_is_own: Callable[[str], bool]) -> set[str]:
    return set()


def _names_a_time(request: Any) -> bool:
    match request:
        case pb.SubmitJobRequest():
            return request.HasField("run_at")
        case pb.WorkflowJob():
            return request.job.HasField("run_at")
        case pb.CreateScheduleRequest() | pb.UpdateScheduleRequest():
            return request.HasField("at")
        case pb.SubmitJobsRequest() | pb.SubmitWorkflowRequest():
            return any(map(_names_a_time, request.jobs))
    return False


def _snake_case(method: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in method).lstrip("_")
