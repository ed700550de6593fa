"""Workflows on the wire: how they are written, sent and waited for."""

from __future__ import annotations

import asyncio
import re
import uuid
from datetime import timedelta
from typing import Any

import pytest

import pulse
from pulse import tuning
from tests.sdk.fake_pulsed import FakePulsed

SECOND = timedelta(seconds=1)


def shape(fake: FakePulsed, workflow_id: str) -> dict[str, tuple[list[str], str]]:
    """The jobs of a stored workflow: what each waits for, and when it starts."""
    return {job.name: ([*job.after], job.when) for job in fake.workflow_jobs[workflow_id]}


async def test_workflow_is_stored_whole_when_its_block_ends(fake: FakePulsed, p: pulse.Pulse) -> None:
    @p.job("extract")
    async def extract(day: str) -> int:
        return len(day)

    @p.job("load", priority=3)
    def load() -> None: ...

    async with p.workflow("nightly") as flow:
        parts = [flow.add(extract, day, name=f"extract-{day}") for day in ("mon", "tue")]
        loaded = flow.add(load.options(delay=SECOND), after=parts)
        flow.add("notify", {"to": "ops"}, after=loaded, when="always", lane="ops", max_attempts=2)
        assert not fake.workflows, "nothing is stored before the block ends"
    run = flow.handle
    assert (run.name, run.duplicate) == ("nightly", False)
    assert shape(fake, run.id) == {
        "extract-mon": ([], "succeeded"),
        "extract-tue": ([], "succeeded"),
        "load": (["extract-mon", "extract-tue"], "succeeded"),
        "notify": (["load"], "always"),
    }
    jobs = [job.job for job in fake.workflow_jobs[run.id]]
    assert [(job.topic, job.payload) for job in jobs] == [
        ("extract", b'{"day":"mon"}'),
        ("extract", b'{"day":"tue"}'),
        ("load", b""),
        ("notify", b'{"to":"ops"}'),
    ]
    assert (jobs[2].priority, jobs[2].delay.seconds) == (3, 1)
    assert (jobs[3].lane, jobs[3].max_attempts) == ("ops", 2)
    assert not any(job.job_id or job.idempotency_key for job in jobs), "the server makes the ids"
    assert {name: job.id for name, job in run.jobs.items()} == {
        name: fake.job_id(at) for at, name in enumerate(shape(fake, run.id), 1)
    }


async def test_block_that_raises_stores_nothing(fake: FakePulsed, p: pulse.Pulse) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what raises
        async with p.workflow("nightly") as flow:
            flow.add("a")
            raise ZeroDivisionError
    assert not fake.workflow_messages
    with pytest.raises(pulse.InvalidArgument, match="read its handle after that"):
        flow.handle  # noqa: B018


async def test_jobs_without_a_name_are_named_after_their_topic(fake: FakePulsed, p: pulse.Pulse) -> None:
    async with p.workflow("pages") as flow:
        flow.add("page", name="page-2")
        nodes = [flow.add("page") for _ in range(3)]
    assert [node.name for node in nodes] == ["page", "page-3", "page-4"]


async def test_mistakes_are_found_where_the_job_is_added(p: pulse.Pulse) -> None:
    @p.job("extract")
    async def extract(day: str) -> None: ...

    other = p.workflow("other")
    foreign = other.add("a")
    flow = p.workflow("nightly")
    first = flow.add("a")
    mistakes: dict[str, Any] = {
        "The job 'a' in `after` belongs to another workflow.": lambda: flow.add("b", after=foreign),
        "Workflow 'nightly' has no job named 'c': add it first.": lambda: flow.add("b", after="c"),
        "Workflow 'nightly' has two jobs named 'a': each needs its own.": lambda: flow.add("b", name="a"),
        "Give nodes, as `add` returns them, or names of jobs, not 7.": lambda: flow.add(
            "b", after=[first, 7]
        ),
        "The name of a workflow has to be a string, but 7 was given.": lambda: p.workflow(7),  # type: ignore[arg-type]
        "when='sometimes' is not known": lambda: flow.add("b", when="sometimes"),
        "The name of a job has to be a text that is not empty, not ''.": lambda: flow.add("b", name=""),
        "A job of a workflow has no option 'key'.": lambda: flow.add("b", None, key="k"),
        "A job of a workflow has no option 'timeout'.": lambda: flow.add(
            extract.options(timeout=SECOND), "d"
        ),
        "'extract' needs day": lambda: flow.add(extract),
        "The signature of 'extract' has its arguments": lambda: flow.add(extract.s("mon"), "tue"),
        "Give a handler, as @p.job makes it, a signature, job.s(…), or a topic": lambda: flow.add(print),
        "The arguments of 'b' are one value, but 2 were given.": lambda: flow.add("b", 1, 2),
    }
    for sentence, mistake in mistakes.items():
        with pytest.raises(pulse.InvalidArgument, match=re.escape(sentence)):
            mistake()
    with pytest.raises(pulse.InvalidArgument, match="has no jobs: add one before its block ends"):
        async with p.workflow("empty"):
            pass
    with pytest.raises(pulse.InvalidArgument, match=r"has to be a UUID, not 'nightly-1'.*uuid5"):
        p.workflow("nightly", id="nightly-1")


async def test_added_after_the_end_is_refused(p: pulse.Pulse) -> None:
    async with p.workflow("nightly") as flow:
        flow.add("a")
    with pytest.raises(pulse.InvalidArgument, match="is stored: add jobs before its block ends"):
        flow.add("b")


async def test_large_workflow_is_sent_in_pieces(fake: FakePulsed, p: pulse.Pulse) -> None:
    async with p.workflow("many") as flow:
        for _ in range(2 * tuning.ENQUEUE_BATCH_JOBS + 1):
            flow.add("a")
    assert fake.workflow_messages == [tuning.ENQUEUE_BATCH_JOBS, tuning.ENQUEUE_BATCH_JOBS, 1]
    fake.workflow_messages.clear()
    async with p.workflow("large") as flow:
        for _ in range(5):
            flow.add("a", "x" * 400_000)
    assert fake.workflow_messages == [2, 2, 1]


async def test_lost_answer_is_asked_for_again(fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.lose_answers = 1
    async with p.workflow("nightly") as flow:
        flow.add("a")
    assert fake.workflow_messages == [1, 1]
    assert not flow.handle.duplicate, "only this call can have stored it"


async def test_workflow_with_an_id_of_its_own_is_stored_once(fake: FakePulsed, p: pulse.Pulse) -> None:
    own = uuid.uuid4()
    for is_duplicate in (False, True):
        async with p.workflow("nightly", id=own) as flow:
            flow.add("a")
        assert (flow.handle.id, flow.handle.duplicate) == (str(own), is_duplicate)
    with pytest.raises(pulse.AlreadyExists, match="It has other jobs"):
        async with p.workflow("nightly", id=str(own)) as flow:
            flow.add("b")


async def test_chain_runs_one_job_after_the_other(fake: FakePulsed, p: pulse.Pulse) -> None:
    @p.job("fetch")
    async def fetch(url: str) -> bytes:
        return url.encode()

    @p.job("parse")
    async def parse() -> None: ...

    run = await p.start(pulse.chain(fetch.s("x"), parse.options(priority=2).s(), parse.s()))
    assert run.name == "fetch"
    assert shape(fake, run.id) == {
        "fetch": ([], "succeeded"),
        "parse": (["fetch"], "succeeded"),
        "parse-2": (["parse"], "succeeded"),
    }
    assert [job.job.priority for job in fake.workflow_jobs[run.id]] == [0, 2, 0]


async def test_groups_and_chains_combine(fake: FakePulsed, p: pulse.Pulse) -> None:
    @p.job("resize")
    async def resize(image: int) -> None: ...

    @p.job("collage")
    async def collage() -> None: ...

    images = pulse.group(resize.s(image) for image in range(2))
    run = await p.start(collage.s().then(images, collage.s()), name="album")
    assert run.name == "album"
    assert shape(fake, run.id) == {
        "collage": ([], "succeeded"),
        "resize": (["collage"], "succeeded"),
        "resize-2": (["collage"], "succeeded"),
        "collage-2": (["resize", "resize-2"], "succeeded"),
    }
    for mistake in (lambda: pulse.chain(), lambda: pulse.group([]), lambda: pulse.group("resize")):  # type: ignore[list-item]
        with pytest.raises(pulse.InvalidArgument, match="signatures"):
            mistake()
    with pytest.raises(pulse.InvalidArgument, match=r"p\.start takes"):
        await p.start(resize)  # type: ignore[arg-type]


async def test_wait_returns_when_the_workflow_has_ended(fake: FakePulsed, p: pulse.Pulse) -> None:
    async with p.workflow("nightly") as flow:
        flow.add("a")
    run = flow.handle
    assert (await run.status()).status is pulse.WorkflowStatus.RUNNING
    with pytest.raises(pulse.ResultTimeout, match=r"has not ended after 0:00:00\.05"):
        await run.wait(timedelta(seconds=0.05))
    waiting = asyncio.create_task(run.wait())
    await asyncio.sleep(0.05)
    fake.end_workflow(run.id, "failed")
    assert (await waiting).status is pulse.WorkflowStatus.FAILED


async def test_wait_outlasts_a_restart_of_the_server(
    fake: FakePulsed, p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "WORKFLOW_WAIT_SECONDS", 0.05)
    async with p.workflow("nightly") as flow:
        flow.add("a")
    waiting = asyncio.create_task(flow.handle.wait())
    await asyncio.sleep(0.1)
    await asyncio.to_thread(fake.stop)
    fake.start()
    fake.end_workflow(flow.handle.id, "succeeded")
    assert (await waiting).status is pulse.WorkflowStatus.SUCCEEDED


async def test_job_of_a_known_workflow_is_found_by_its_name(fake: FakePulsed, p: pulse.Pulse) -> None:
    async with p.workflow("nightly") as flow:
        flow.add("a")
        flow.add("b")
    known = p.workflows.handle(flow.handle.id)
    assert (await known.job("b")).id == fake.job_id(2)
    with pytest.raises(pulse.NotFound, match="has no job 'c'"):
        await known.job("c")
    with pytest.raises(pulse.NotFound, match="There is no workflow 'x': ids of workflows are UUIDs"):
        await p.workflows.get("x")


def test_blocking_client_has_the_same_verbs(fake: FakePulsed) -> None:
    seen: list[str] = []
    with pulse.SyncPulse(fake.address) as p:

        @p.enqueue_middleware
        def add_tenant(enqueue: pulse.Enqueue, call_next: Any) -> None:
            seen.append(enqueue.topic)
            enqueue.metadata["tenant"] = "7"
            call_next()

        @p.job("fetch")
        def fetch(url: str) -> int:
            return len(url)

        with p.workflow("nightly") as flow:
            node = flow.add(fetch, "x")
            flow.add("b", after=node)
        run = flow.handle
        assert isinstance(run.jobs["fetch"], pulse.SyncJobHandle)
        fake.end_workflow(run.id, "succeeded")
        assert run.wait().status == run.status().status == "succeeded"
        assert p.workflows.handle(run.id).job("b").id == fake.job_id(2)
        assert [job.name for job in p.workflows.iter_jobs(run.id, page_size=1)] == ["fetch", "b"]
        chained = p.start(pulse.chain(fetch.s("x"), fetch.s("y")))
        assert shape(fake, chained.id) == {"fetch": ([], "succeeded"), "fetch-2": (["fetch"], "succeeded")}
    assert seen == ["fetch", "b", "fetch"]
    assert [job.job.metadata["tenant"] for job in fake.workflow_jobs[run.id]] == ["7", "7"]
