"""Texts to values. Each function names the setting in the sentence that it raises, and never a secret."""

from __future__ import annotations

import ipaddress
import re
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from pulse.topic_settings import BACKOFF, Backoff
from pulse_server.access.users import BadUsers, User, parse_users
from pulse_server.base import bounds
from pulse_server.base.bounds import MOST_STEP_BYTES, MOST_STEPS, MOST_WORKFLOW_JOBS
from pulse_server.database.urls import BadConnectionString, read_database_url

DEFAULT_PORT = 50051
LOOPBACK = "127.0.0.1"
EVERYWHERE = "[::]"

_LOG_LEVELS = ("debug", "info", "warning", "error")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_SHORTEST = timedelta(milliseconds=1)  # a shorter tick would spin
_LONGEST = timedelta(days=365)
_LONGEST_RETENTION = timedelta(days=3650)
_YES = frozenset({"1", "on", "true", "yes"})
_NO = frozenset({"0", "off", "false", "no"})
_MOST_PROCESSES = 64
_SIZE = re.compile(r"(\d+)(k|m)?(?:i?b)?")
_BYTES_OF = {None: 1, "k": 1024, "m": 1024 * 1024}
_HOST = re.compile(r"[\w.-]*|\[[0-9A-Fa-f:.]+(%\w+)?\]")
_UNIX = "unix:"


class BadSettings(Exception):
    """Settings are wrong; each problem is a sentence that names the setting and the values it takes."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Address(NamedTuple):
    """Where to listen. The default host depends on access: all callers, or known users only."""

    host: str
    port: int

    def in_full(self, default_host: str) -> str:
        return f"{self.host or default_host}:{self.port}"


class UnixAddress(NamedTuple):
    """A unix socket to listen on; every process that may open the file may connect."""

    path: str

    def in_full(self, _default_host: str) -> str:
        return f"{_UNIX}{self.path}"


def parse_duration(text: str, name: str, *, longest: timedelta = _LONGEST) -> timedelta:
    """'500ms', '30s', '5m', '1h', '7d', or bare seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _SECONDS_OF[match[2]] if match else 0.0
    if not _SHORTEST.total_seconds() <= seconds <= longest.total_seconds():
        raise BadSettings(
            f"{name} is {text!r}: give a duration such as 500ms, 30s, 5m, 1h or 7d, "
            f"from 1ms to {longest.days}d."
        )
    return timedelta(seconds=seconds)


def parse_retention(text: str, name: str) -> timedelta | None:
    """A duration, or 'forever'."""
    if text.strip().lower() == "forever":
        return None
    try:
        return parse_duration(text, name, longest=_LONGEST_RETENTION)
    except BadSettings as error:
        raise BadSettings(f"{error} Or 'forever', to delete nothing.") from None


def parse_grace(text: str, name: str) -> timedelta:
    """A duration, or 0."""
    return timedelta() if text.strip() in ("0", "0s") else parse_duration(text, name)


def parse_address(
    text: str, name: str = "PULSE_GRPC_ADDR", default_port: int | None = DEFAULT_PORT
) -> Address:
    """A port, ':port' or 'host:port', or a host alone where the port has a default."""
    text = text.strip()
    host, separator, port = text.rpartition(":")
    is_host_alone = text.endswith("]") or (not separator and not port.isdecimal())
    if is_host_alone and default_port is not None:
        host, port = text, str(default_port)
    if not port.isdecimal() or int(port) > 65535 or not _HOST.fullmatch(host):
        raise BadSettings(
            f"{name} is {text!r}: give a port, :port or host:port; "
            "an IPv6 address goes into brackets, as in [::1]:6000."
        )
    return Address(host, int(port))


def parse_http_address(text: str, name: str) -> Address | UnixAddress:
    """As for gRPC but without a default port, or 'unix:/path'."""
    path = text.strip().removeprefix(_UNIX)
    if path != text.strip():
        if not path.startswith("/"):
            raise BadSettings(f"{name} is {text!r}: after unix: comes the absolute path of the socket.")
        return UnixAddress(path)
    return parse_address(text, name, default_port=None)


def parse_database_url(text: str, name: str) -> str:
    """A URL or key=value pairs, as libpq takes them. Returned as it was written."""
    try:
        read_database_url(text)
    except BadConnectionString as error:
        raise BadSettings(f"{name} {error}") from None
    return text.strip()


def parse_log_level(text: str, name: str) -> str:
    level = text.strip().lower()
    if level not in _LOG_LEVELS:
        raise BadSettings(f"{name} is {text!r}: give one of {', '.join(_LOG_LEVELS)}.")
    return level


def parse_switch(text: str, name: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise BadSettings(f"{name} is {text!r}: give on or off.")
    return word in _YES


def parse_user_list(text: str, name: str) -> tuple[User, ...]:
    try:
        return parse_users(text, name)
    except BadUsers as error:
        raise BadSettings(str(error)) from None


def parse_processes(text: str, name: str) -> int:
    return _parse_count(text, name, _MOST_PROCESSES)


def parse_attempts(text: str, name: str) -> int:
    return _parse_count(text, name, bounds.MAX_ATTEMPTS)


def parse_steps(text: str, name: str) -> int:
    return _parse_count(text, name, MOST_STEPS)


def parse_workflow_jobs(text: str, name: str) -> int:
    return _parse_count(text, name, MOST_WORKFLOW_JOBS)


def parse_result_size(text: str, name: str) -> int:
    """'65536' or '64K', up to the largest payload of a job."""
    return _parse_size(text, name, bounds.MAX_PAYLOAD_BYTES)


def parse_step_size(text: str, name: str) -> int:
    """'65536' or '64K', up to the largest step that fits into an answer."""
    return _parse_size(text, name, MOST_STEP_BYTES)


def _parse_size(text: str, name: str, most: int) -> int:
    match = _SIZE.fullmatch(text.strip().lower())
    size = int(match[1]) * _BYTES_OF[match[2]] if match else 0
    if not 1 <= size <= most:
        longest = most // (1024 * 1024)
        raise BadSettings(f"{name} is {text!r}: give a size such as 65536, 64K or 1M, from 1 to {longest}M.")
    return size


def parse_backoff(text: str, name: str) -> Backoff:
    """'first=2s,factor=3,longest=6h,jitter=0.2'; the last three may be left out."""
    try:
        backoff = BACKOFF.parse(text)
        BACKOFF.check(backoff)
    except ValueError:
        raise BadSettings(
            f"{name} is {text!r}: give first=2s,factor=3,longest=6h,jitter=0.2, with a factor from 1 to 100, "
            "a jitter from 0 to 1, and longest no shorter than first. All but first may be left out."
        ) from None
    return backoff


def _parse_count(text: str, name: str, most: int) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text) <= most:
        raise BadSettings(f"{name} is {text!r}: give a number from 1 to {most}.")
    return int(text)


def parse_path(text: str, name: str) -> Path:
    try:
        return Path(text.strip()).expanduser()
    except RuntimeError:
        raise BadSettings(f"{name} is {text!r}: there is no such home directory.") from None


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to host:port. A name other than localhost may lead anywhere."""
    if address.startswith(_UNIX):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def written(span: timedelta) -> str:
    """The duration as an option takes it: 7d, 30s, 500ms."""
    seconds = span.total_seconds()
    if seconds >= 86400 and seconds % 86400 == 0:
        return f"{seconds / 86400:g}d"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
