"""A small pulsed without a database, for tests of what the SDK does on the wire.

It runs in threads of its own, so that a test may block its event loop. Every fact that it has seen can be
awaited with `until`.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.v1 import pulse_pb2_grpc
from pulse.wire.servers import FROM_PULSED
from tests.ports import reserve_port
from tests.sdk.fake_jobs import FakeJobs
from tests.sdk.fake_schedules import FakeSchedules
from tests.sdk.fake_steps import FakeSteps
from tests.sdk.fake_topics import FakeTopics
from tests.sdk.fake_workflows import FakeWorkflows
from tests.sdk.patience import PATIENCE_SECONDS as PATIENCE_SECONDS


class FakePulsed(
    FakeJobs, FakeSchedules, FakeTopics, FakeSteps, FakeWorkflows, pulse_pb2_grpc.PulseServiceServicer
):
    """Records the requests, and answers as the test asks."""

    def __init__(self, lease_seconds: float = 30.0, heartbeat_seconds: float = 10.0) -> None:
        FakeJobs.__init__(self)
        FakeSchedules.__init__(self)
        FakeTopics.__init__(self)
        FakeSteps.__init__(self)
        FakeWorkflows.__init__(self)
        self.lease_seconds = lease_seconds
        self.heartbeat_seconds = heartbeat_seconds
        self.changed = threading.Condition()
        self.metadata: list[dict[str, str]] = []
        # Workers.
        self.opened: list[pb.StreamJobsRequest] = []
        self.streams: list[queue.Queue[pb.StreamJobsResponse | None]] = []
        self.results: dict[str, pb.Result] = {}
        self.returned: dict[str, bytes] = {}
        self.result_count = 0
        self.capacities: list[int] = []
        self.run_seconds: list[float] = []
        self.refused_results: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.beats: list[tuple[str, int]] = []
        self.heartbeats: list[pb.HeartbeatsRequest] = []
        self.releases: list[pb.ReleaseRequest] = []
        self.beats_fail = False
        self.beats_refusal: tuple[grpc.StatusCode, str] | None = None
        self.says_its_database_is_away = False
        self.disowned: set[str] = set()
        self.locked: set[str] = set()
        self.locked_releases: Counter[str] = Counter()  # how often the row of a job will be found locked
        self.beats_may_answer = threading.Event()
        self.beats_may_answer.set()
        self.paused: set[str] = set()
        self.released: list[str] = []
        self.releases_refused = 0
        self.held_while_blocked: list[str] | None = None
        self.stream_refusal: tuple[grpc.StatusCode, str] | None = None
        self.refused_streams = 0
        self._waiting: list[pb.StreamJobsResponse] = []
        self.port = reserve_port(self)
        self._server: grpc.Server | None = None

    # ------------------------------------------------------------ lifetime

    def start(self) -> FakePulsed:
        self._server = grpc.server(ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0)])
        pulse_pb2_grpc.add_PulseServiceServicer_to_server(self, self._server)
        assert self._server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        self._server.start()
        return self

    def stop(self) -> None:
        """Vanish; the port stays known, so that `start` comes back at the same address."""
        self.submit_may_answer.set()
        with self.changed:
            for stream in self.streams:
                stream.put(None)
            self.streams.clear()
        assert self._server is not None
        self._server.stop(grace=0).wait()

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    @property
    def clock_seconds(self) -> float:
        """What this server's clock shows; it began at another time than the worker's."""
        return time.monotonic() + 1_000_000

    # ------------------------------------------------------------ what tests use

    def until(self, fact: Callable[[], Any]) -> None:
        with self.changed:
            assert self.changed.wait_for(fact, PATIENCE_SECONDS), "this never came true"

    async def until_async(self, fact: Callable[[], Any]) -> None:
        await asyncio.to_thread(self.until, fact)

    def deliver(self, *job_ids: str, topic: str = "work", age_seconds: float = 0.0, **fields: Any) -> None:
        """Send jobs to the worker, as if they had been claimed so long ago."""
        assignments = [
            pb.JobAssignment(
                **{
                    "job_id": job_id,
                    "topic": topic,
                    "attempt": 1,
                    "run": fields.get("attempt", 1),
                    "max_attempts": 3,
                    "payload": b"",
                    **fields,
                }
            )
            for job_id in job_ids
        ]
        claimed_at = self.clock_seconds - age_seconds
        self.send(pb.StreamJobsResponse(assignments=assignments, clock_seconds=claimed_at))

    def send(self, message: pb.StreamJobsResponse) -> None:
        """Send to the worker that is connected, or to the next one that connects."""
        with self.changed:
            if self.streams:
                self.streams[-1].put(message)
            else:
                self._waiting.append(message)

    def end_streams(self) -> None:
        """End the streams of all workers; they may connect again."""
        with self.changed:
            for stream in self.streams:
                stream.put(None)

    @contextlib.contextmanager
    def _change(self, context: grpc.ServicerContext) -> Iterator[None]:
        with self.changed:
            self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
            yield
            self.changed.notify_all()

    # ------------------------------------------------------------ the service

    def _lose_answer(self, context: grpc.ServicerContext) -> None:
        with self.changed:
            is_lost = self.lose_answers > 0
            self.lose_answers -= is_lost
        if is_lost:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    def StreamJobs(  # noqa: N802
        self, request: pb.StreamJobsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamJobsResponse]:
        if (refusal := self.stream_refusal) is not None:
            with self._change(context):
                self.refused_streams += 1
            context.abort(*refusal)
        stream: queue.Queue[pb.StreamJobsResponse | None] = queue.Queue()
        context.add_callback(lambda: self._end(stream))
        welcome = pb.StreamWelcome()
        welcome.lease_ttl.FromNanoseconds(int(self.lease_seconds * 1e9))
        welcome.heartbeat_interval.FromNanoseconds(int(self.heartbeat_seconds * 1e9))
        welcome.steps.bytes = self.step_bytes
        # Before the welcome: a worker may end an idle stream as soon as it has read that.
        with self._change(context):
            self.opened.append(request)
        key = pb.CompletionKey(worker="ann:w1", key=b"of ann:w1")
        yield pb.StreamJobsResponse(welcome=welcome, clock_seconds=self.clock_seconds, completion_key=key)
        with self.changed:
            if context.is_active():
                self.streams.append(stream)
                while self._waiting:
                    stream.put(self._waiting.pop(0))
            self.changed.notify_all()
        while (message := stream.get()) is not None:
            yield message

    def _end(self, stream: queue.Queue[pb.StreamJobsResponse | None]) -> None:
        with self.changed:
            if stream in self.streams:
                self.streams.remove(stream)
            stream.put(None)

    def ReportResults(self, request: pb.ReportResultsRequest, context: Any) -> pb.ReportResultsResponse:  # noqa: N802
        response = pb.ReportResultsResponse()
        with self._change(context):
            if request.capacity:
                self.capacities.append(request.capacity)
            self.run_seconds.append(request.run_seconds)
            for index, result in enumerate(request.results):
                self.result_count += 1
                if result.job_id in self.refused_results:
                    code, sentence = self.refused_results[result.job_id]
                    response.refused.add(
                        index=index, refusal=pb.Refusal(code=code.value[0], message=sentence)
                    )
                elif not self.says_its_database_is_away:
                    self.results[result.job_id] = result
                    if index in request.returned:
                        self.returned[result.job_id] = request.returned[index]
        self._refuse_without_database(context)
        return response

    def _refuse_without_database(self, context: grpc.ServicerContext) -> None:
        if self.says_its_database_is_away:
            context.set_trailing_metadata(((FROM_PULSED, "1"),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "The database did not answer. Try again.")

    def StreamSubmits(self, requests: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """It has no lines: the SDK makes calls instead. tests/sdk/line_server.py has them."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    StreamReports = StreamSubmits

    def Heartbeats(self, request: pb.HeartbeatsRequest, context: Any) -> pb.HeartbeatsResponse:  # noqa: N802
        with self._change(context):
            self.beats.extend((claim.job_id, claim.attempt) for claim in request.claims)
            self.heartbeats.append(request)
        wait_for(self.beats_may_answer)
        self._refuse_without_database(context)
        if self.beats_refusal is not None:
            context.abort(*self.beats_refusal)
        if self.beats_fail:
            context.abort(grpc.StatusCode.UNAVAILABLE, "The database is away.")
        return pb.HeartbeatsResponse(
            stop=[claim for claim in request.claims if claim.job_id in self.disowned],
            unknown=[claim for claim in request.claims if claim.job_id in self.locked],
            paused=self.paused.intersection(request.starting),
        )

    def Release(self, request: pb.ReleaseRequest, context: Any) -> pb.ReleaseResponse:  # noqa: N802
        with self._change(context):
            self.releases_refused += self.says_its_database_is_away
            self.releases.append(request)
        self._refuse_without_database(context)
        with self._change(context):
            if request.capacity:
                self.capacities.append(request.capacity)
            locked = [claim for claim in request.claims if self.locked_releases[claim.job_id] > 0]
            self.locked_releases.subtract(claim.job_id for claim in locked)
            self.released.extend(claim.job_id for claim in request.claims if claim not in locked)
            if request.is_blocked:
                self.held_while_blocked = [claim.job_id for claim in request.held]
        return pb.ReleaseResponse(released=len(request.claims) - len(locked), locked=locked)


def wait_for(event: threading.Event) -> None:
    """Block until the event is set, within the patience of the tests."""
    assert event.wait(PATIENCE_SECONDS), "this never happened"
