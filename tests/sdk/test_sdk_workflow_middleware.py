"""Enqueue middleware around workflows."""

from __future__ import annotations

from typing import Any

import pytest

import pulse
from tests.sdk.fake_pulsed import FakePulsed


async def test_enqueue_middleware_sees_the_jobs_of_each_topic(fake: FakePulsed, p: pulse.Pulse) -> None:
    seen: list[tuple[str, int]] = []

    @p.enqueue_middleware
    async def add_tenant(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        seen.append((enqueue.topic, len(enqueue.payloads)))
        enqueue.metadata["tenant"] = "7"
        await call_next()

    async with p.workflow("nightly") as flow:
        for topic in ("a", "b", "a"):
            flow.add(topic, metadata={"of": topic})
    assert seen == [("a", 2), ("b", 1)]
    stored = [dict(job.job.metadata) for job in fake.workflow_jobs[flow.handle.id]]
    assert stored == [{"of": topic, "tenant": "7"} for topic in ("a", "b", "a")]


async def test_workflow_of_many_topics_passes_the_middleware(p: pulse.Pulse) -> None:
    @p.enqueue_middleware
    async def around(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        await call_next()

    async with p.workflow("many") as flow:
        for number in range(500):
            flow.add(f"topic-{number}")
    assert len(flow.handle.jobs) == 500


def test_topics_that_do_not_fit_on_the_stack_are_refused(fake: FakePulsed) -> None:
    with pulse.SyncPulse(fake.address) as p:

        @p.enqueue_middleware
        def around(enqueue: pulse.Enqueue, call_next: Any) -> None:
            call_next()

        with p.workflow("many") as flow:
            for number in range(80):
                flow.add(f"topic-{number}")
        with pytest.raises(pulse.InvalidArgument, match="have 81 topics"), p.workflow("more") as flow:  # noqa: PT012 - its end raises
            for number in range(81):
                flow.add(f"topic-{number}")


async def test_refusal_of_middleware_stores_nothing(fake: FakePulsed, p: pulse.Pulse) -> None:
    @p.enqueue_middleware
    async def refuse(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
        if enqueue.topic == "b":
            raise PermissionError("not b")
        await call_next()

    with pytest.raises(PermissionError, match="not b"):  # noqa: PT012 - its end raises
        async with p.workflow("nightly") as flow:
            flow.add("a")
            flow.add("b")
    assert not fake.workflow_messages
