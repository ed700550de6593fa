"""Routers collect handlers and schedules; a client includes them. A notebook defines a handler again."""

from __future__ import annotations

import types
from datetime import timedelta
from typing import Any

import pytest

import pulse
from tests.rows import each_row
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.scripts import run_script


async def test_included_handlers_run_and_enqueue_with_their_options(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    router = pulse.Router()
    seen: list[str] = []

    @router.job("mail", max_attempts=7, priority=4, discard_on=ValueError)
    async def mail(to: str) -> None:
        seen.append(to)
        raise ValueError(to)

    router.cron("mail", "@daily", {"to": "a"}, name="daily")
    p.include(router)
    handle = await mail.enqueue("you")
    assert fake.stored[handle.id].max_attempts == 7
    async with running(p):
        fake.deliver("j", topic="mail", payload=b'{"to":"you"}')
        await fake.until_async(lambda: "j" in fake.results and fake.definitions)
    assert seen == ["you"]
    assert fake.results["j"].discard
    assert [(made.name, made.priority) for made in fake.definitions] == [("daily", 4)]


def test_blocking_router_has_blocking_jobs(fake: FakePulsed) -> None:
    router = pulse.SyncRouter()

    @router.job("mail", priority=3)
    def mail(to: str) -> str:
        return to

    router.every("mail", timedelta(hours=1), {"to": "a"})
    with pulse.SyncPulse(fake.address) as p:
        p.include(router)
        assert fake.stored[mail.enqueue("you").id].priority == 3
        assert p.handled_topics == ("mail",)
        assert [schedule.name for schedule in p.declare()] == ["mail"]


async def test_job_of_a_router_that_no_client_has_says_what_to_do() -> None:
    job = pulse.Router().register("t", lambda: None)
    with pytest.raises(pulse.InvalidHandler, match=r"call p\.include\(router\) first"):
        await job.enqueue()
    with pytest.raises(pulse.InvalidHandler, match=r"call p\.include\(router\) first"):
        pulse.SyncRouter().register("t", lambda: None).enqueue()


def test_taken_topic_is_named_and_nothing_is_included() -> None:
    one, two = pulse.Router(), pulse.Router()
    one.register("mail", lambda: None)
    two.register("free", lambda: None)
    two.register("mail", lambda: None)
    p = pulse.Pulse()
    p.include(one)
    with pytest.raises(pulse.InvalidHandler, match=r"'mail' has a handler already, .*test_sdk_routers"):
        p.include(two)
    assert p.handled_topics == ("mail",)
    with pytest.raises(pulse.InvalidHandler, match="has a handler already"):
        one.register("mail", lambda: None)


def test_router_that_is_included_again_adds_what_is_new() -> None:
    router, p = pulse.Router(), pulse.Pulse()
    router.register("one", lambda: None)
    router.every("one", timedelta(hours=1))
    p.include(router)
    p.include(router)
    router.register("two", lambda: None)
    assert p.handled_topics == ("one", "two")


@each_row("client, router", [(pulse.Pulse, pulse.SyncRouter), (pulse.SyncPulse, pulse.Router)])
def test_router_of_the_other_kind_is_refused(client: Any, router: Any) -> None:
    with pytest.raises(pulse.InvalidHandler, match="include"):
        client().include(router())


def test_mistakes_are_found_where_they_are_written() -> None:
    router = pulse.Router()
    with pytest.raises(pulse.InvalidHandler, match="a topic"):
        router.job(5)  # type: ignore[arg-type]
    with pytest.raises(pulse.InvalidArgument, match=r"write timedelta\(seconds=5\)"):
        router.job("t", timeout=5)  # type: ignore[arg-type]
    with pytest.raises(pulse.InvalidArgument, match="cron"):
        router.cron("t", "not a cron")
    with pytest.raises(pulse.InvalidHandler, match=r"\*args"):
        router.register("t", _star)


def _star(*args: int) -> None: ...


# ------------------------------------------------------------ notebooks


def cell(p: pulse.Pulse, source: str, number: int) -> None:
    """Run a cell of a notebook, as IPython does: in __main__, with a file name of its own."""
    module = types.ModuleType("__main__")
    exec(compile(source, f"<cell {number}>", "exec"), {"__name__": module.__name__, "p": p})


def test_cell_that_runs_again_replaces_its_handler(caplog: pytest.LogCaptureFixture) -> None:
    p = pulse.Pulse()
    cell(p, "@p.job('t')\ndef handle(): return 1\n", 1)
    cell(p, "@p.job('t', priority=4)\ndef handle(): return 2\n", 2)
    handler = p._registry.get("t")
    assert handler is not None
    assert (handler.function(), handler.options.priority) == (2, 4)
    assert not caplog.records


def test_other_function_on_the_same_topic_is_an_error() -> None:
    p = pulse.Pulse()
    cell(p, "@p.job('t')\ndef handle(): return 1\n", 1)
    with pytest.raises(pulse.InvalidHandler, match=r"has a handler already, __main__\.handle"):
        cell(p, "@p.job('t')\ndef other(): return 2\n", 2)


def test_second_function_of_the_same_name_in_a_file_is_warned_of() -> None:
    printed = run_script(
        """
        import logging, sys
        import pulse
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        p = pulse.Pulse()

        @p.job("t")
        def handle(): ...

        @p.job("t")
        def handle(): ...
        """
    )
    assert "is replaced by another of the same name at line" in printed
