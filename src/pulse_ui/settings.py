"""The settings of the dashboard: one table, from environment and flags. `pulse-ui --help` prints it."""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from pulse_text.times import parse_duration
from pulse_ui import tuning

DEFAULT_ADDRESS = "127.0.0.1:8080"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_YES = frozenset({"1", "on", "true", "yes"})
_NO = frozenset({"", "0", "off", "false", "no"})


class BadSettings(Exception):
    """An invalid setting, as a sentence that names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8080
    server: str | None = None
    """The address of pulsed; None: the default of the SDK, PULSE_ADDR or localhost:50051."""
    public_url: str | None = None
    """The origin that browsers see, such as https://jobs.example.com; None: from the request."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    session_idle: timedelta = tuning.SESSION_IDLE
    read_only: bool = False
    open_to_network: bool = False
    """Serve a pulsed without users to other machines."""
    log_level: str = "info"

    @property
    def is_loopback(self) -> bool:
        """True when only this machine can reach the dashboard."""
        if self.host in LOOPBACK_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def address(self) -> str:
        """The URL of the dashboard on this machine."""
        scheme = "https" if self.tls_certificate is not None else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Option:
    flag: str
    variable: str
    metavar: str
    help: str


OPTIONS = (
    Option("--addr", "PULSE_UI_ADDR", "HOST:PORT", f"address to listen on (default {DEFAULT_ADDRESS})"),
    Option("--server", "PULSE_ADDR", "HOST:PORT", "address of pulsed (default localhost:50051)"),
    Option(
        "--public-url",
        "PULSE_UI_PUBLIC_URL",
        "URL",
        "the public URL behind a proxy, such as https://jobs.example.com",
    ),
    Option("--tls-cert", "PULSE_UI_TLS_CERT", "FILE", "PEM certificate chain; with --tls-key, serves HTTPS"),
    Option("--tls-key", "PULSE_UI_TLS_KEY", "FILE", "PEM key of the certificate"),
    Option(
        "--session-idle",
        "PULSE_UI_SESSION_IDLE",
        "SPAN",
        "log out a user after this long without activity (default 30m)",
    ),
    Option("--read-only", "PULSE_UI_READ_ONLY", "on|off", "refuse all changes (default off)"),
    Option(
        "--insecure-open-to-network",
        "PULSE_UI_INSECURE_OPEN_TO_NETWORK",
        "on|off",
        "serve a pulsed without users to other machines: every visitor is an admin (default off)",
    ),
    Option("--log-level", "PULSE_UI_LOG_LEVEL", "LEVEL", "debug, info, warning or error (default info)"),
)
_EPILOG = """\
Each setting can also come from the environment; a flag takes precedence. TLS to pulsed is configured with the
variables of the SDK: PULSE_TLS, PULSE_TLS_CA, PULSE_TLS_CLIENT_CERT, PULSE_TLS_CLIENT_KEY,
PULSE_TLS_SERVER_NAME. Users log in with their name and password of pulsed; the dashboard has no users of its
own."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pulse-ui",
        description="The pulse dashboard: the queue in a browser.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pulse-ui {_version()}")
    for option in OPTIONS:
        # A bare --read-only means on.
        bare = "on" if option.metavar == "on|off" else None
        parser.add_argument(
            option.flag,
            dest=option.variable,
            metavar=option.metavar,
            nargs="?" if bare else None,
            const=bare,
            default=argparse.SUPPRESS,
            help=f"{option.help} [{option.variable}]",
        )
    return parser


def read_settings(arguments: Sequence[str] | None, environ: Mapping[str, str]) -> Settings:
    """Return the settings. Raises BadSettings naming the invalid one."""
    given: dict[str, str] = {**environ, **vars(parser().parse_args(arguments))}

    def text(variable: str) -> str:
        return given.get(variable, "").strip()

    host, port = _address(text("PULSE_UI_ADDR") or DEFAULT_ADDRESS)
    certificate, key = _file("PULSE_UI_TLS_CERT", text), _file("PULSE_UI_TLS_KEY", text)
    if (certificate is None) != (key is None):
        missing = "PULSE_UI_TLS_KEY" if key is None else "PULSE_UI_TLS_CERT"
        raise BadSettings(f"{missing} is missing: HTTPS needs both a certificate and its key.")
    level = text("PULSE_UI_LOG_LEVEL").lower() or "info"
    if level not in ("debug", "info", "warning", "error"):
        raise BadSettings(f"PULSE_UI_LOG_LEVEL={level!r} is not a level: use debug, info, warning or error.")
    return Settings(
        host=host,
        port=port,
        server=text("PULSE_ADDR") or None,
        public_url=_origin(text("PULSE_UI_PUBLIC_URL")),
        tls_certificate=certificate,
        tls_key=key,
        session_idle=_span("PULSE_UI_SESSION_IDLE", text("PULSE_UI_SESSION_IDLE") or "30m"),
        read_only=_switch("PULSE_UI_READ_ONLY", text("PULSE_UI_READ_ONLY")),
        open_to_network=_switch(
            "PULSE_UI_INSECURE_OPEN_TO_NETWORK", text("PULSE_UI_INSECURE_OPEN_TO_NETWORK")
        ),
        log_level=level,
    )


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadSettings(
            f"PULSE_UI_ADDR={text!r} is not an address: write host:port, for example {DEFAULT_ADDRESS}."
        )
    return host.strip("[]") or "0.0.0.0", int(port)


def _origin(text: str) -> str | None:
    if not text:
        return None
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        parts, port = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise BadSettings(
            f"PULSE_UI_PUBLIC_URL={text!r} is not an origin: write scheme and host without a path, "
            "for example https://jobs.example.com."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}"


def _span(variable: str, text: str) -> timedelta:
    try:
        span = parse_duration(text)
    except ValueError:
        span = timedelta()
    if span <= timedelta():
        raise BadSettings(f"{variable}={text!r} is not a duration: write for example 90s, 30m or 8h.")
    return span


def _switch(variable: str, text: str) -> bool:
    if text.lower() in _YES | _NO:
        return text.lower() in _YES
    raise BadSettings(f"{variable}={text!r} is not valid: use on or off.")


def _file(variable: str, text: Callable[[str], str]) -> Path | None:
    if not (path := text(variable)):
        return None
    if not Path(path).is_file():
        raise BadSettings(f"{variable}={path!r} is not a readable file.")
    return Path(path)


def _version() -> str:
    try:
        return version("pulse-jobs")
    except PackageNotFoundError:
        return "from a source tree"
