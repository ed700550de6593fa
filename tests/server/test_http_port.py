"""The HTTP port itself: what it takes, what it refuses, and that no client can hold it up."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from pulse_server.doors.http import HTTP_REQUEST_BYTES, HttpAnswer, HttpServer, Page, Request
from pulse_server.doors.ports import PortInUse
from tests.eventually import PATIENCE_SECONDS
from tests.rows import each_row
from tests.server.http_caller import connect, get, reply, send
from tests.transport.pulse_server_under_test import SECOND

LARGE = bytes(4 * 1024 * 1024)


async def echo(request: Request) -> HttpAnswer:
    return HttpAnswer.sentence(HTTPStatus.OK, f"{request.method} {request.path} from {request.peer}")


async def broken(_request: Request) -> HttpAnswer:
    raise RuntimeError("the secret of the house")


async def large(_request: Request) -> HttpAnswer:
    return HttpAnswer(body=LARGE)


class Slow:
    """A page that answers when the test says so."""

    def __init__(self) -> None:
        self.callers = asyncio.Semaphore(0)
        self.answers = asyncio.Event()

    async def page(self, _request: Request) -> HttpAnswer:
        self.callers.release()
        await self.answers.wait()
        return HttpAnswer()


PAGES = {"/echo": echo, "/broken": broken, "/large": large}


@asynccontextmanager
async def running(address: str = "127.0.0.1:0", **more: Page) -> AsyncIterator[str]:
    server = HttpServer(PAGES | {f"/{name}": page for name, page in more.items()})
    yield await server.start(address)
    await server.stop()


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with running() as address:
        yield address


async def test_page_is_answered_and_the_connection_closed(address: str) -> None:
    answer = await get(address, "/echo?verbose=1")

    assert answer.status == 200
    assert answer.text == "GET /echo from 127.0.0.1\n"
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_head_has_the_headers_and_no_body(address: str) -> None:
    answer = await get(address, "/echo", method="HEAD")

    assert answer.status == 200
    assert answer.body == b""
    assert answer.headers["content-length"] == str(len("HEAD /echo from 127.0.0.1\n"))


@each_row("path", ["/", "/metrics", "/echo/", "//echo", "/../echo", "http://host/echo", "*"])
async def test_unknown_page_is_not_found(address: str, path: str) -> None:
    assert (await get(address, path)).status == 404


@each_row("method", ["POST", "PUT", "DELETE", "OPTIONS", "get", "BREW"])
async def test_pages_can_only_be_read(address: str, method: str) -> None:
    answer = await get(address, "/echo", method=method)

    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"


async def test_request_with_a_body_is_answered_although_the_body_is_not_read(address: str) -> None:
    body = bytes(10_000)
    head = f"POST /echo HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    assert reply(await send(address, head + body)).status == 405


@each_row(
    "line", [b"GET", b"GET /echo", b"GET  /echo HTTP/1.1", b"\x16\x03\x01\x02\x00", b"GET /a b HTTP/1.1", b""]
)
async def test_first_line_that_cannot_be_read_is_a_bad_request(address: str, line: bytes) -> None:
    assert reply(await send(address, line + b"\r\nHost: x\r\n\r\n")).status == 400


async def test_header_that_cannot_be_read_is_a_bad_request(address: str) -> None:
    assert reply(await send(address, b"GET /echo HTTP/1.1\r\nno colon here\r\n\r\n")).status == 400


@each_row(
    "lines",
    [
        b"Authorization : Basic eA==",
        b"X-Other: y\r\n Authorization: Basic eA==",
        b"Authorization: Basic eA==\r\nauthorization: Basic eA==",
    ],
)
async def test_header_that_others_may_read_differently_is_a_bad_request(address: str, lines: bytes) -> None:
    assert reply(await send(address, b"GET /echo HTTP/1.1\r\n" + lines + b"\r\n\r\n")).status == 400


async def test_other_versions_are_refused(address: str) -> None:
    assert reply(await send(address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).status == 505


async def test_headers_past_the_bound_are_refused(address: str) -> None:
    padding = {"X-Padding": "x" * HTTP_REQUEST_BYTES}

    assert (await get(address, "/echo", headers=padding)).status == 431


async def test_headers_below_the_bound_are_taken(address: str) -> None:
    padding = {"X-Padding": "x" * (HTTP_REQUEST_BYTES - 200)}

    assert (await get(address, "/echo", headers=padding)).status == 200


async def test_request_that_does_not_arrive_is_given_up(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.doors.http.HTTP_REQUEST_TIMEOUT", 0.1 * SECOND)

    assert reply(await send(address, b"GET /echo HTTP/1.1\r\n")).status == 408


async def test_caller_that_hangs_up_leaves_nothing_behind(address: str) -> None:
    for data in (b"", b"GET /ec"):
        _, writer = await connect(address)
        writer.write(data)
        writer.close()

    assert (await get(address, "/echo")).status == 200


async def test_caller_that_does_not_read_its_answer_is_cut(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.doors.http.HTTP_ANSWER_TIMEOUT", 0.2 * SECOND)
    _, writer = await connect(address)
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's can
    writer.write(b"GET /large HTTP/1.1\r\n\r\n")

    with pytest.raises(ConnectionError):
        await notice_the_end(writer)
    writer.close()


async def notice_the_end(writer: asyncio.StreamWriter) -> None:
    """Write until the other side is gone."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)


async def test_connections_past_the_bound_are_turned_away_and_the_next_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulse_server.doors.http.HTTP_CONNECTIONS", 2)
    slow = Slow()
    async with running(slow=slow.page) as address:
        waiting = [asyncio.create_task(get(address, "/slow")) for _ in range(2)]
        for _ in waiting:
            await slow.callers.acquire()

        turned_away = await get(address, "/echo")

        assert turned_away.status == 503
        assert turned_away.headers["retry-after"] == "1"
        slow.answers.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
        assert (await get(address, "/echo")).status == 200


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /echo HTTP/1.1\r\nX-Slow: ", b"POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n"],
)
async def test_silent_caller_gives_way_to_the_next(
    address: str, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("pulse_server.doors.http.HTTP_CONNECTIONS", 2)
    idle = []
    for _ in range(20):
        idle.append(await connect(address))
        idle[-1][1].write(sent)

    assert (await get(address, "/echo")).status == 200

    for reader, writer in idle[:-2]:  # these were cut, and did not have to wait for it
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
    for _, writer in idle[-2:]:
        writer.close()


async def test_error_in_a_page_reveals_nothing(address: str) -> None:
    answer = await get(address, "/broken")

    assert answer.status == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


async def test_many_callers_at_once_are_answered(address: str) -> None:
    answers = await asyncio.gather(*(get(address, "/echo") for _ in range(50)))

    assert {answer.status for answer in answers} == {200}


async def test_large_answer_arrives_whole(address: str) -> None:
    assert (await get(address, "/large")).body == LARGE


async def test_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    async with running(f"unix:{path}") as address:
        assert (await get(address, "/echo")).text == "GET /echo from unix\n"
    assert not path.exists()


async def test_socket_file_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))

    async with running(f"unix:{path}") as address:
        assert (await get(address, "/echo")).status == 200


async def test_socket_file_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    async with running(f"unix:{tmp_path / 'http.sock'}") as address:
        with pytest.raises(PortInUse, match="is another pulsed there"):
            await HttpServer(PAGES).start(address)

        assert (await get(address, "/echo")).status == 200


@each_row("address", ["unix:/nowhere/at/all.sock", "unix:/" + "x" * 200])
async def test_path_that_cannot_be_used_is_reported_in_a_sentence(address: str) -> None:
    with pytest.raises(PortInUse, match=r"^Cannot listen on unix:/.*PULSE_HTTP_ADDR"):
        await HttpServer(PAGES).start(address)


async def test_port_in_use_is_reported_in_a_sentence(address: str) -> None:
    with pytest.raises(PortInUse, match=rf"^Cannot listen on {address}: .*PULSE_HTTP_ADDR"):
        await HttpServer(PAGES).start(address)


async def test_unknown_host_is_reported_in_a_sentence() -> None:
    with pytest.raises(PortInUse, match="does not know that host"):
        await HttpServer(PAGES).start("no-such-host.invalid:0")


async def test_everywhere_means_both_families() -> None:
    async with running("[::]:0") as address:
        port = address.rpartition(":")[2]

        assert (await get(f"127.0.0.1:{port}", "/echo")).status == 200


async def test_stopping_does_not_wait_for_a_silent_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulse_server.doors.http.HTTP_REQUEST_TIMEOUT", 600 * SECOND)
    server = HttpServer(PAGES)
    address = await server.start("127.0.0.1:0")
    reader, writer = await connect(address)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await server.stop()
        assert await reader.read() == b""
    writer.close()
