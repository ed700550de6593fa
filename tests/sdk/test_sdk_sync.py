from __future__ import annotations

import asyncio
import inspect
import os
import re
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import pulse
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed
from tests.sdk.scripts import run_script

UNKNOWN = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def p(fake: FakePulsed) -> Iterator[pulse.SyncPulse]:
    with pulse.SyncPulse(fake.address, concurrency=2) as client:
        yield client


def test_blocking_client_has_the_verbs_of_the_async_one() -> None:
    for blocking, awaited, constructor in (
        (pulse.SyncPulse, pulse.Pulse, ["__init__"]),
        (pulse.SyncSchedules, pulse.Schedules, []),
    ):
        public = [name for name in dir(awaited) if not name.startswith("_")]
        assert public == [name for name in dir(blocking) if not name.startswith("_")]
        for name in constructor + public:
            verb, awaited_verb = getattr(blocking, name), getattr(awaited, name)
            assert not inspect.iscoroutinefunction(verb)
            if callable(verb):
                expected = str(inspect.signature(awaited_verb).replace(return_annotation="-"))
                # Each kind of client includes the router of its kind.
                expected = re.sub(r"'Router'", "'SyncRouter'", expected)
                # And its handles block.
                expected = re.sub(r"\bJobHandle\b", "SyncJobHandle", expected)
                assert str(inspect.signature(verb).replace(return_annotation="-")) == expected, name
            assert verb.__doc__, name


def test_blocking_verbs_are_functions_that_say_what_they_return() -> None:
    returned = {
        name: inspect.signature(verb).return_annotation
        for name, verb in inspect.getmembers(pulse.SyncPulse, inspect.isfunction)
    }
    assert returned["get_job"] == "JobInfo"
    assert returned["enqueue_many"] == "list[SyncJobHandle[Any]]"
    assert returned["iter_jobs"] == "Iterator[JobInfo]"
    assert returned["watch"] == "Generator[Transitions, None, None]"
    assert returned["cancel_matching"] == "Generator[int, None, None]"
    assert returned["every"] == returned["cron"] == returned["delete"] == "None"
    assert not any("Async" in annotation for annotation in returned.values())
    assert pulse.SyncPulse.get_job.__doc__ == pulse.Pulse.get_job.__doc__


def test_pages_are_asked_for_one_at_a_time(fake: FakePulsed, p: pulse.SyncPulse) -> None:
    p.enqueue_many("t", range(5))
    jobs = p.iter_jobs(page_size=2)
    assert next(jobs).id != next(jobs).id
    p.close()
    with pytest.raises(pulse.ClientClosed):
        next(jobs)


def test_verbs_block_and_answer(fake: FakePulsed, p: pulse.SyncPulse) -> None:
    handle = p.enqueue("t", {"a": 1}, priority=4)
    assert fake.stored[handle.id].priority == 4
    assert p.get_job(handle.id).args == {"a": 1}
    assert len(p.enqueue_many("t", (number for number in range(3)))) == 3
    assert len(p.list_jobs(limit=2)) == 2
    assert len(list(p.iter_jobs(page_size=3))) == 4
    with pytest.raises(pulse.NotFound):
        p.get_job(UNKNOWN)
    with pytest.raises(pulse.InvalidTransition):
        p.cancel(UNKNOWN)


def test_many_threads_share_one_client(fake: FakePulsed, p: pulse.SyncPulse) -> None:
    with ThreadPoolExecutor(8) as threads:
        handles = list(threads.map(lambda number: p.enqueue("t", number), range(200)))
    assert {handle.id for handle in handles} == set(fake.stored)


def test_blocking_job_enqueues_itself(fake: FakePulsed, p: pulse.SyncPulse) -> None:
    @p.job("mail")
    def send(ctx: pulse.Context, to: str, copies: int = 1) -> str:
        return f"{copies} to {to}"

    assert send(pulse.Context(), "x", copies=2) == "2 to x"
    handle = send.options(priority=9, metadata={"a": "b"}).enqueue("x")
    assert (fake.stored[handle.id].payload, fake.stored[handle.id].priority) == (b'{"to":"x"}', 9)
    assert len(send.enqueue_many([{"to": "a"}, {"to": "b", "copies": 2}])) == 2
    with pytest.raises(pulse.InvalidArgument, match="give a mapping"):
        send.enqueue_many(["a"])
    with pytest.raises(pulse.InvalidArgument, match="belongs to one job"):
        send.options(key="k").enqueue_many([])


def test_run_blocks_until_close_and_handlers_may_enqueue(fake: FakePulsed, p: pulse.SyncPulse) -> None:
    @p.job("work")
    def handle(number: int) -> None:
        p.enqueue("next", number + 1)

    worker = threading.Thread(target=p.run)
    worker.start()
    fake.deliver("j1", payload=b'{"number":1}')
    fake.until(lambda: "j1" in fake.results)
    assert fake.results["j1"].success
    assert [job.payload for job in fake.stored.values()] == [b"2"]
    p.close()
    worker.join(PATIENCE_SECONDS)
    assert not worker.is_alive()


async def test_run_inside_an_event_loop_is_refused(p: pulse.SyncPulse) -> None:
    p.register("t", lambda: None)
    with pytest.raises(pulse.ClientClosed, match="event loop"):
        p.run()


def test_closed_client_raises_and_can_be_entered_again(p: pulse.SyncPulse) -> None:
    p.enqueue("t")
    p.close()
    with pytest.raises(pulse.ClientClosed, match="closed"):
        p.enqueue("t")
    with p:
        p.enqueue("t")


def test_absent_server_is_an_error_in_words(fake: FakePulsed) -> None:
    fake.stop()
    with (
        pulse.SyncPulse(fake.address, timeout=timedelta(milliseconds=200)) as p,
        pytest.raises(pulse.Unavailable, match="is it running"),
    ):
        p.enqueue("t")


def test_script_that_never_closes_ends_at_once(fake: FakePulsed) -> None:
    printed = run_script(
        """
        import sys, pulse
        p = pulse.SyncPulse(sys.argv[1])
        print(p.enqueue("t").id)
        """,
        fake.address,
    )
    assert printed.strip() in fake.stored


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_client_made_before_a_fork_works_in_every_child(fake: FakePulsed) -> None:
    printed = run_script(
        """
        import os, sys, pulse
        p = pulse.SyncPulse(sys.argv[1])
        children = []
        for _ in range(2):
            child = os.fork()
            if not child:
                print(p.enqueue("t").id + "\\n", end="", flush=True)  # one write: two children must not mix
                sys.exit()
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
        print(p.enqueue("t").id)
        """,
        fake.address,
    )
    assert set(printed.split()) == set(fake.stored)
    assert len(fake.stored) == 3


def test_call_in_a_running_event_loop_warns_once_at_the_line_of_the_caller(p: pulse.SyncPulse) -> None:
    async def blocks() -> None:
        p.enqueue("note")
        p.enqueue("note")
        list(p.iter_jobs())

    with pytest.warns(RuntimeWarning, match=r"Use pulse\.Pulse .* asyncio\.to_thread") as warned:
        asyncio.run(blocks())
    (warning,) = warned
    assert warning.filename == __file__


def test_call_in_a_thread_of_an_event_loop_does_not_warn(p: pulse.SyncPulse) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(asyncio.to_thread(p.enqueue, "note"))
