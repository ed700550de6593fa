"""Asks the pulsed of this container whether it is ready. Exit code 0 if so, 1 with the reason if not."""

import http.client
import os
import socket
import ssl
import sys

TIMEOUT_SECONDS = 4


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(self.path)


def connection(address: str) -> http.client.HTTPConnection:
    """The way to PULSE_HTTP_ADDR, from inside."""
    if address.startswith("unix:"):
        return UnixConnection(address.removeprefix("unix:"))
    host, _, port = address.rpartition(":")
    if host in ("", "[::]", "0.0.0.0"):
        host = "127.0.0.1"
    host = host.strip("[]")
    if not os.environ.get("PULSE_TLS_CERT"):
        return http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_SECONDS)
    # The certificate is for the name that clients use, not for this address; nothing secret is sent or read.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, int(port), timeout=TIMEOUT_SECONDS, context=context)


def main() -> int:
    address = os.environ.get("PULSE_HTTP_ADDR", "").strip()
    if not address:
        print("PULSE_HTTP_ADDR is not set, so there is no health page.")
        return 1
    try:
        asked = connection(address)
        asked.request("GET", "/readyz")
        answer = asked.getresponse()
        text = answer.read(4096).decode(errors="replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"{address} does not answer: {error}")
        return 1
    print(text)
    return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
