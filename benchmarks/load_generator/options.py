"""The command line of the load generator, and the secrets that must not be on it."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulse


class NoPassword(Exception):
    """A user was named, and no password can be had. Its text is a sentence."""


@dataclass(frozen=True, slots=True)
class Load:
    rate: float
    """Jobs a second."""
    seconds: float
    concurrency: int
    payload_bytes: int
    work_seconds: float
    """How long each handler takes."""
    topic: str
    has_worker: bool
    keeps: bool
    """Leave the jobs in the database."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev.py bench --addr HOST:PORT",
        description="Load for a server that already runs. It submits jobs of a topic of its own at a fixed "
        "rate, runs them, shows how long submits and starts took, and deletes its jobs. Other topics are not "
        "touched.",
        epilog="The password comes from PULSE_PASSWORD, from --password-file, or is asked for; never from "
        "the command line. Ctrl-C ends early, and cleans up.",
        allow_abbrev=False,  # --password would be taken for --password-file
    )
    parser.add_argument("--addr", required=True, metavar="HOST:PORT", help="where pulsed serves")
    parser.add_argument("--user", default=os.environ.get("PULSE_USER"), help="also PULSE_USER")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="its first line is the password")
    parser.add_argument("--tls", action="store_true", help="trust the authorities that this machine trusts")
    parser.add_argument("--tls-ca", type=Path, metavar="FILE", help="trust this authority; turns TLS on")
    parser.add_argument("--tls-server-name", metavar="NAME", help="the name in the server's certificate")
    parser.add_argument("--rate", type=_positive, default=50, help="jobs a second (50)")
    parser.add_argument("--seconds", type=_positive, default=10, help="for how long (10)")
    parser.add_argument("--concurrency", type=int, default=20, help="handlers at once (20)")
    parser.add_argument("--payload-bytes", type=int, default=50, help="of each job (50)")
    parser.add_argument("--work-ms", type=float, default=0, help="how long each handler takes (0)")
    parser.add_argument("--topic-prefix", default="bench-load", help="of the topic of this run (bench-load)")
    parser.add_argument("--no-worker", action="store_true", help="measure submits alone")
    parser.add_argument("--keep", action="store_true", help="leave the jobs in the database")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number <= 1_000_000:
        raise argparse.ArgumentTypeError("must be above 0")
    return number


def password_for(user: str | None, file: Path | None, environ: Mapping[str, str]) -> str | None:
    """Return the password, asked for at a terminal if it is nowhere else. Raises NoPassword."""
    if user is None:
        return None
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").partition("\n")[0]
        except OSError as error:
            raise NoPassword(f"The file of the password cannot be read: {error}.") from None
    if password := environ.get("PULSE_PASSWORD"):
        return password
    if not sys.stdin.isatty():
        raise NoPassword(f"The password of {user!r} is missing: set PULSE_PASSWORD, or give --password-file.")
    return getpass.getpass(f"Password of {user}: ")


def client_for(options: argparse.Namespace, password: str | None, **more: Any) -> pulse.Pulse:
    return pulse.Pulse(
        options.addr,
        user=options.user or "",
        password=password or "",
        tls=True if options.tls else None,
        ca=options.tls_ca,
        server_name=options.tls_server_name,
        concurrency=options.concurrency,
        **more,
    )
