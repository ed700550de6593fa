"""The proxy with its conditions, between real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from faults.proxy import Proxy, Way, database_proxy, proxy_to
from tests.eventually import PATIENCE_SECONDS

# How long silence must last to count as such. A busy machine can only make a test pass too easily.
_SILENCE_SECONDS = 0.05


class Server:
    """Echoes each line, and records the lines it received and how each of its connections ended."""

    def __init__(self) -> None:
        self.address = ""
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self.endings: asyncio.Queue[str] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.received.put_nowait(line)
                writer.write(line)
            self.endings.put_nowait("closed")
        except ConnectionError:
            self.endings.put_nowait("reset")
        finally:
            writer.close()


class Caller:
    """One connection, and lines over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    async def hears(self) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return (await self._reader.readline()).removesuffix(b"\n")

    async def hears_nothing(self) -> bool:
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                return not await self._reader.read(1)
        except TimeoutError:
            return True

    async def asks(self, line: bytes) -> bytes:
        self.say(line)
        return await self.hears()

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[Server, Proxy]]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.address = "{}:{}".format(*listener.sockets[0].getsockname())
    async with proxy_to(server.address) as proxy:
        yield server, proxy
    listener.close()


async def connected(proxy: Proxy) -> Caller:
    """A caller that has been answered already: both sides of its connection are open."""
    host, _, port = proxy.address.rpartition(":")
    caller = Caller(*await asyncio.open_connection(host, int(port)))
    assert await caller.asks(b"hello") == b"hello"
    return caller


async def next_of(queue: "asyncio.Queue[bytes] | asyncio.Queue[str]") -> bytes | str:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await queue.get()


async def received(server: Server, line: bytes) -> bool:
    """Whether this is the next line that the server receives, except for greetings."""
    while (heard := await next_of(server.received)) == b"hello\n":
        pass
    return heard == line + b"\n"


async def test_sound_link_passes_everything_and_the_end() -> None:
    async with stage() as (server, proxy):
        caller = await connected(proxy)
        large = b"x" * 50_000
        assert await caller.asks(large) == large
        caller.close()
        assert await next_of(server.endings) == "closed"


async def test_delay_holds_every_byte_up_for_so_long_and_keeps_their_order() -> None:
    async with stage() as (_, proxy):
        caller = await connected(proxy)
        loop = asyncio.get_running_loop()
        with proxy.delay(0.02, jitter_seconds=0.02):
            began = loop.time()
            for number in range(20):
                caller.say(b"%d" % number)
                await asyncio.sleep(0)
            assert [await caller.hears() for _ in range(20)] == [b"%d" % number for number in range(20)]
            assert loop.time() - began >= 2 * 0.02  # there and back


async def test_jitter_comes_from_the_seed() -> None:
    def lags(seed: int) -> list[float]:
        proxy = Proxy("", seed)
        proxy.delay(1, jitter_seconds=1)
        return [proxy.lag_seconds() for _ in range(5)]

    assert lags(1) == lags(1) != lags(2)
    assert all(1 <= lag <= 2 for lag in lags(1))


async def test_cut_resets_both_sides_and_new_connections_are_accepted() -> None:
    async with stage() as (server, proxy):
        caller = await connected(proxy)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            await caller.hears()
        assert await next_of(server.endings) == "reset"
        await connected(proxy)


async def test_frozen_link_delivers_once_it_is_healed() -> None:
    async with stage() as (server, proxy):
        caller = await connected(proxy)
        with proxy.freeze():
            caller.say(b"one")
            caller.say(b"two")
            assert await caller.hears_nothing()
            assert server.received.qsize() == 1  # the greeting
        assert [await caller.hears(), await caller.hears()] == [b"one", b"two"]


async def test_end_of_a_caller_is_held_up_as_its_bytes_are() -> None:
    async with stage() as (server, proxy):
        caller, other = await connected(proxy), await connected(proxy)
        with proxy.freeze(Way.REQUESTS):
            caller.close()
            assert await other.hears_nothing()
            assert server.endings.empty()
        assert await next_of(server.endings) == "closed"


async def test_frozen_answers_let_requests_through() -> None:
    async with stage() as (server, proxy):
        caller = await connected(proxy)
        with proxy.freeze(Way.ANSWERS):
            caller.say(b"one")
            assert await received(server, b"one")
            assert await caller.hears_nothing()
        assert await caller.hears() == b"one"


async def test_condition_begins_with_the_request_that_it_waits_for() -> None:
    async with stage() as (_, proxy):
        caller = await connected(proxy)
        with proxy.freeze(Way.ANSWERS, after=b"magic") as condition:
            assert await caller.asks(b"ordinary") == b"ordinary"
            assert not condition.has_begun.is_set()
            caller.say(b"the magic word")
            await condition.has_begun.wait()
            assert await caller.hears_nothing()
        assert await caller.hears() == b"the magic word"
        assert await caller.asks(b"magic again") == b"magic again"


async def test_link_stays_frozen_until_the_last_of_two_conditions_is_healed() -> None:
    async with stage() as (_, proxy):
        caller = await connected(proxy)
        first, second = proxy.freeze(), proxy.freeze(Way.ANSWERS)
        caller.say(b"one")
        first.heal()
        first.heal()
        assert await caller.hears_nothing()
        second.heal()
        assert await caller.hears() == b"one"


async def test_refused_callers_find_the_same_port_open_again() -> None:
    async with stage() as (_, proxy):
        caller = await connected(proxy)
        with proxy.refuse():
            with pytest.raises(ConnectionRefusedError):
                await connected(proxy)
            assert await caller.asks(b"still here") == b"still here"
        await connected(proxy)


async def test_lost_requests_never_arrive_and_healing_cuts_the_connections_that_lost_some() -> None:
    async with stage() as (server, proxy):
        caller, unharmed = await connected(proxy), await connected(proxy)
        with proxy.blackhole(Way.REQUESTS):
            caller.say(b"lost")
            assert await caller.hears_nothing()
        with pytest.raises(ConnectionResetError):
            await caller.hears()
        assert await unharmed.asks(b"found") == b"found"
        assert await received(server, b"found")


async def test_lost_answers_affect_existing_connections_only() -> None:
    async with stage() as (server, proxy):
        caller = await connected(proxy)
        condition = proxy.lose_answers()
        caller.say(b"done?")
        assert await received(server, b"done?")
        later = await connected(proxy)
        assert await caller.hears_nothing()
        condition.heal()
        with pytest.raises(ConnectionResetError):
            await caller.hears()
        assert await later.asks(b"me?") == b"me?"


async def test_caller_is_reset_where_no_server_listens() -> None:
    async with stage() as (server, proxy):
        proxy.lead_to("127.0.0.1:1")
        with pytest.raises(ConnectionResetError):
            await connected(proxy)
        proxy.lead_to(server.address)
        await connected(proxy)


async def test_statement_whose_answer_is_lost_is_committed_all_the_same(database_dsn: str) -> None:
    """The database has carried out the statement, and its client is cut off before the answer."""
    async with database_proxy(database_dsn) as (proxy, dsn):
        connection = await asyncpg.connect(dsn)
        condition = proxy.lose_answers(after=b"unheard")
        statement = "INSERT INTO pulse.barred_topics (topic, reason) VALUES ('unheard', '')"
        asking = asyncio.create_task(connection.execute(statement))
        await condition.has_begun.wait()
        other = await asyncpg.connect(dsn)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await other.fetchval("SELECT count(*) FROM pulse.barred_topics"):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert not asking.done()
        condition.heal()
        with pytest.raises((OSError, asyncpg.PostgresConnectionError)):
            await asking
        await other.close()
