"""Ports: whether one is free, and that a reserved one is kept for those who share it."""

import socket
from collections.abc import Iterator

import pytest

from pulse_server.doors.ports import PortInUse, probe, reserve
from tests.rows import each_row

ANY = "127.0.0.1:0"


def listener(address: str, *, shares: bool = True) -> socket.socket:
    """A socket that listens as gRPC's do."""
    host, _, port = address.rpartition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shares))
    try:
        made.bind((host, int(port)))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


@pytest.fixture
def taken() -> Iterator[str]:
    with listener(ANY) as made:
        yield f"127.0.0.1:{made.getsockname()[1]}"


def test_taken_port_is_reported_with_its_setting(taken: str) -> None:
    for attempt in (probe, reserve):
        with pytest.raises(
            PortInUse, match=f"Cannot listen on {taken}: is another pulsed there.*PULSE_HTTP_ADDR"
        ):
            attempt(taken, "PULSE_HTTP_ADDR")


def test_address_that_is_not_of_this_machine_is_reported() -> None:
    with pytest.raises(PortInUse, match=r"192\.0\.2\.1:6000: (Cannot|Can't) assign.*another address"):
        probe("192.0.2.1:6000")


def test_probe_leaves_the_port_free() -> None:
    with reserve(ANY) as reservation:
        address = reservation.address
    for _ in range(2):
        probe(address)
    listener(address, shares=False).close()


def test_reserved_port_is_kept_for_those_who_share_it() -> None:
    with reserve(ANY) as reservation:
        for attempt in (probe, reserve):
            with pytest.raises(PortInUse):
                attempt(reservation.address)
        with pytest.raises(OSError, match="in use"):
            listener(reservation.address, shares=False)
        with listener(reservation.address), listener(reservation.address), pytest.raises(PortInUse):
            reserve(reservation.address)


def test_reservation_takes_no_connection_away() -> None:
    with reserve(ANY) as reservation, listener(reservation.address) as only:
        only.settimeout(5)
        host, _, port = reservation.address.rpartition(":")
        for _ in range(20):
            with socket.create_connection((host, int(port))):
                only.accept()[0].close()


def test_port_can_be_reserved_right_after_a_server_left_it(taken: str) -> None:
    with listener(ANY, shares=False) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with socket.create_connection(server.getsockname()):
            server.accept()[0].close()  # closed by the server first: it is remembered for a while
    with reserve(address) as reservation:
        assert reservation.address == address


@each_row("host", ["localhost", "0.0.0.0", "[::]"])
def test_every_address_of_the_host_has_the_same_port(host: str) -> None:
    with reserve(f"{host}:0") as reservation:
        assert reservation.address.startswith(f"{host}:")
        port = int(reservation.address.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            listener(f"127.0.0.1:{port}", shares=False)
