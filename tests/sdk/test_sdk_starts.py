"""When a handler does not start: its job was stopped, or its claim has to be confirmed first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

import pulse
from pulse import tuning
from pulse.handlers.registry import Registry
from pulse.handlers.step_calls import StepCalls
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.held_jobs import ClaimedJob, LeaseTerms, Releases, Shared, Window
from pulse.worker.intake import Claims
from pulse.worker.processes import Processes
from pulse.worker.runners import Runners
from pulse.worker.threads import LostSlots, ThreadCall
from tests.eventually import eventually


def claims_for(
    handler: Callable[..., Any], confirmed: list[ClaimedJob], reported: list[ClaimedJob]
) -> Claims:
    registry = Registry()
    registry.register("work", handler, {})
    nothing = cast("Any", None)
    shared = Shared(nothing, "w1", Window(1), LeaseTerms(30))
    steps = StepCalls(nothing, nothing, "w1")
    runners = Runners(
        shared,
        confirm=confirmed.append,
        report=reported.append,
        fatal=lambda error: None,
        processes=Processes([], None, steps, shared.terms),
        lost=LostSlots(shared.window, None, announce=lambda: None, stop=lambda error: None),
    )
    releases = Releases(shared, lambda: None)
    return Claims(shared, registry, steps, runners, releases)


async def test_job_that_is_stopped_before_its_turn_never_starts() -> None:
    begun: list[str] = []
    go = asyncio.Event()

    async def handle(ctx: pulse.Context) -> None:
        begun.append(ctx.job_id)
        await go.wait()

    reported: list[ClaimedJob] = []
    claims = claims_for(handle, [], reported)
    claims.accept(
        pb.JobAssignment(job_id=job_id, topic="work", attempt=1) for job_id in ("j1", "stopped", "j2")
    )
    await eventually(lambda: begun)
    claims.stop([claims.held["stopped"]], "a test says so")
    go.set()
    await eventually(lambda: len(reported) == 2)
    assert begun == ["j1", "j2"]


async def test_job_whose_claim_is_out_of_date_is_confirmed_instead_of_started() -> None:
    async def handle() -> None:
        raise AssertionError("must not run")

    confirmed: list[ClaimedJob] = []
    claims = claims_for(handle, confirmed, [])
    age_seconds = tuning.START_WITHIN_SECONDS + 0.01
    claims.accept([pb.JobAssignment(job_id="j1", topic="work", attempt=1)], age_seconds)
    await eventually(lambda: confirmed)
    assert claims.unstarted == set(confirmed)


async def test_thread_that_gets_to_a_job_too_late_has_it_confirmed_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    def handle(ctx: pulse.Context) -> None:
        begun.append(ctx.job_id)

    confirmed: list[ClaimedJob] = []
    reported: list[ClaimedJob] = []
    claims = claims_for(handle, confirmed, reported)
    threads = claims._runners._calls._threads

    def start_late(function: Callable[..., Any], job: ClaimedJob, *args: Any) -> ThreadCall:
        monkeypatch.undo()
        start_by, job.start_by = job.start_by, 0.0
        call = threads.start(function, job, *args)
        call.future.add_done_callback(lambda _: setattr(job, "start_by", start_by))
        return call

    monkeypatch.setattr(threads, "start", start_late)
    claims.accept([pb.JobAssignment(job_id="j1", topic="work", attempt=1)])
    await eventually(lambda: confirmed)
    assert (begun, claims.unstarted) == ([], set(confirmed))

    confirmed[0].confirm = False
    claims._runners.confirmed(confirmed)
    await eventually(lambda: reported)
    assert begun == ["j1"]


async def test_thread_that_gets_to_a_job_that_was_stopped_leaves_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def handle() -> None:
        raise AssertionError("must not run")

    confirmed: list[ClaimedJob] = []
    reported: list[ClaimedJob] = []
    is_over = asyncio.Event()
    claims = claims_for(handle, confirmed, reported)
    threads = claims._runners._calls._threads

    def start_late(function: Callable[..., Any], job: ClaimedJob, *args: Any) -> ThreadCall:
        monkeypatch.undo()
        claims.stop([job], "a test says so")
        call = threads.start(function, job, *args)
        call.future.add_done_callback(
            lambda _: asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, is_over.set)
        )
        return call

    monkeypatch.setattr(threads, "start", start_late)
    claims.accept([pb.JobAssignment(job_id="j1", topic="work", attempt=1)])
    await is_over.wait()
    assert (confirmed, reported, claims.held) == ([], [], {})
