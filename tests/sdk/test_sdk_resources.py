"""Resources open once, before the first job, are given to handlers, and close after the last handler."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


@dataclass
class Database:
    name: str
    is_open: bool = True


class Repository:
    def __init__(self, database: Database) -> None:
        self.database = database


class Mailer:
    is_open = False

    def __enter__(self) -> Mailer:
        self.is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False


async def test_resources_are_injected_by_type_and_closed_after_the_last_handler(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    events: list[Any] = []

    @p.resource
    async def database() -> AsyncIterator[Database]:
        made = Database("main")
        events.append("open database")
        yield made
        made.is_open = False
        events.append("close database")

    @p.resource
    def repository(db: Database) -> Iterator[Repository]:
        events.append("open repository")
        yield Repository(db)
        events.append("close repository")

    p.resource(Mailer)

    @p.job("work")
    async def handle(number: int, ctx: pulse.Context, repo: Repository = pulse.INJECTED) -> None:
        await asyncio.sleep(0)
        assert ctx.state[Database] is repo.database is ctx.state["database"]
        events.append((number, repo.database.is_open, ctx.state[Mailer].is_open))

    @p.job("threaded")
    def in_a_thread(*, db: Database = pulse.INJECTED, mailer: Mailer = pulse.INJECTED) -> None:
        events.append((db.name, mailer.is_open))

    async with running(p):
        await handle_all(fake)
    assert events[:2] == ["open database", "open repository"]
    assert events[2:4] == [(1, True, True), ("main", True)]
    assert events[4:] == ["close repository", "close database"]
    assert all(result.success for result in fake.results.values())


async def handle_all(fake: FakePulsed) -> None:
    fake.deliver("j1", payload=b'{"number":1}')
    await fake.until_async(lambda: "j1" in fake.results)
    fake.deliver("j2", topic="threaded")
    await fake.until_async(lambda: "j2" in fake.results)


async def test_running_handler_is_done_before_its_resource_is_closed(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    started, go_on, states = asyncio.Event(), asyncio.Event(), []

    @p.resource
    @contextlib.asynccontextmanager
    async def database() -> AsyncIterator[Database]:
        made = Database("main")
        try:
            yield made
        finally:
            made.is_open = False

    @p.job("work")
    async def handle(db: Database = pulse.INJECTED) -> None:
        started.set()
        await go_on.wait()
        states.append(db.is_open)

    run = asyncio.create_task(p.run(handle_signals=False))
    fake.deliver("j1")
    await started.wait()
    run.cancel()
    await asyncio.sleep(0.05)
    assert not run.done()
    go_on.set()
    await asyncio.wait({run})
    assert states == [True]
    assert fake.results["j1"].success


async def test_opening_that_fails_ends_the_run_with_a_sentence_and_closes_the_others(
    p: pulse.Pulse,
) -> None:
    closed: list[str] = []

    @p.resource
    async def cache() -> AsyncIterator[None]:
        yield
        closed.append("cache")

    @p.resource
    async def database() -> AsyncIterator[Database]:
        raise ConnectionRefusedError("no route to the database")
        yield

    @p.job("work")
    async def handle() -> None: ...

    with pytest.raises(pulse.ResourceFailed) as caught:
        await p.run(handle_signals=False)
    assert caught.value.message.startswith(
        "The resource database cannot be opened: ConnectionRefusedError: no route to the database "
        f"({__file__}, line "
    )
    assert closed == ["cache"]


async def test_closing_that_fails_closes_the_others_and_ends_the_run_with_a_sentence(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    closed: list[str] = []

    @p.resource
    def cache() -> Iterator[None]:
        yield
        closed.append("cache")

    @p.resource
    def database() -> Iterator[Database]:
        yield Database("main")
        raise OSError("half closed")

    @p.job("work")
    async def handle() -> None:
        signal.raise_signal(signal.SIGTERM)

    fake.deliver("j1")
    with pytest.raises(pulse.ResourceFailed, match="database cannot be closed: OSError: half closed"):
        await p.run()
    assert closed == ["cache"]


async def test_worker_that_is_stopped_while_a_resource_opens_ends() -> None:
    canceled = asyncio.Event()
    async with pulse.Pulse("127.0.0.1:1") as p:

        @p.resource
        async def database() -> AsyncIterator[None]:
            signal.raise_signal(signal.SIGTERM)
            try:
                await asyncio.sleep(600)
            finally:
                canceled.set()
            yield

        @p.job("work")
        async def handle() -> None: ...

        await p.run()
    assert canceled.is_set()


async def test_each_run_opens_its_own(fake: FakePulsed, p: pulse.Pulse, running: Running) -> None:
    opened: list[Database] = []

    @p.resource
    def database() -> Iterator[Database]:
        opened.append(Database(f"{len(opened)}"))
        yield opened[-1]

    @p.job("work")
    async def handle(db: Database = pulse.INJECTED) -> None: ...

    handler = p._registry.get("work")
    assert handler is not None
    for count in (1, 2):
        async with running(p):
            await eventually(lambda: Database in handler.state)
            assert handler.state[Database] is opened[-1]
            assert len(opened) == count
        assert Database not in handler.state


async def test_resource_without_a_type_is_named_where_its_type_is_missing(p: pulse.Pulse) -> None:
    @p.resource
    def untyped():  # type: ignore[no-untyped-def]
        yield Database("one")

    @p.job("work")
    async def handle(db: Database = pulse.INJECTED) -> None: ...

    with pytest.raises(pulse.InvalidHandler, match=r"of the type Database. The type of untyped is not known"):
        await p.run(handle_signals=False)


async def test_handler_can_be_called_with_a_fake_resource_and_without_a_worker(p: pulse.Pulse) -> None:
    @p.job("work")
    async def handle(number: int, ctx: pulse.Context, db: Database = pulse.INJECTED) -> str:
        return f"{number} {db.name} {ctx.state['cache']} {ctx.state[Mailer]}"

    context = pulse.Context(state={"cache": "fake", Mailer: "fake too"})
    assert await handle(1, context, db=Database("fake")) == "1 fake fake fake too"
    with pytest.raises(AttributeError, match="filled by a worker"):
        await handle(1, context)
    with pytest.raises(pulse.InvalidArgument, match=r"no resource .other..*there are: cache"):
        context.state["other"]


async def test_resource_is_no_argument_of_a_job(fake: FakePulsed, p: pulse.Pulse) -> None:
    @p.job("work")
    async def handle(number: int, db: Database = pulse.INJECTED) -> None: ...

    await handle.enqueue(1)
    assert [job.payload for job in fake.stored.values()] == [b'{"number":1}']
    with pytest.raises(pulse.InvalidArgument, match="does not take db: a resource is not an argument"):
        await handle.enqueue(1, db=Database("x"))


async def test_handler_whose_resource_is_not_there_ends_the_run_with_a_sentence(p: pulse.Pulse) -> None:
    @p.job("work")
    async def handle(db: Database = pulse.INJECTED) -> None: ...

    with pytest.raises(pulse.InvalidHandler, match=r"'work' takes the resource db.*Database"):
        await p.run(handle_signals=False)


def test_resource_that_cannot_be_one_is_refused_where_it_is_registered() -> None:
    p = pulse.Pulse()

    async def connects() -> Database:
        return Database("x")

    with pytest.raises(pulse.InvalidArgument, match="yield"):
        p.resource(connects)

    @p.resource
    def first() -> Iterator[Database]:
        yield Database("first")

    with pytest.raises(pulse.InvalidArgument, match="same name or type"):

        @p.resource
        def second() -> Iterator[Database]:
            yield Database("second")

    with pytest.raises(pulse.InvalidArgument, match="takes db, which has no type"):

        @p.resource
        def third(db) -> Iterator[None]:  # type: ignore[no-untyped-def]
            yield

    with pytest.raises(pulse.InvalidHandler, match="needs a type and a name"):

        @p.job("work")
        def handle(db=pulse.INJECTED) -> None: ...  # type: ignore[no-untyped-def]
