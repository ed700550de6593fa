"""The command `pulse-ui`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

from pulse_ui import tuning
from pulse_ui.settings import BadSettings, Settings, read_settings

log = logging.getLogger("pulse_ui")

# The packages of the extra `ui`, by the names that are imported.
_NEEDED = ("cronsim", "jinja2", "js_lib_htmx", "markupsafe", "starlette", "uvicorn")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 stopped, 1 could not start, 2 wrong arguments."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        # A bare install of the SDK has this script without its dependencies.
        from pulse.installation import how_to_install

        print(
            f"pulse-ui: the dashboard needs more than the SDK (missing: {', '.join(missing)}). "
            f"{how_to_install('ui')}",
            file=sys.stderr,
        )
        return 1
    try:
        settings = read_settings(arguments, os.environ)
        logging.basicConfig(
            level=settings.log_level.upper(),
            format="%(asctime)s %(levelname)s %(message)s",
            stream=sys.stderr,
        )
        serve(settings)
    except (BadSettings, OSError) as error:
        print(f"pulse-ui: {error}", file=sys.stderr)
        return 1
    return 0


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises BadSettings or OSError if it cannot start."""
    # Imported here: `pulse-ui --help` needs neither gRPC nor uvicorn.
    import pulse
    from pulse_ui.app import listen

    try:
        server = pulse.Pulse(settings.server, user="", password="").address
    except pulse.InvalidArgument as error:
        raise BadSettings(str(error)) from None
    listener = listen(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    asyncio.run(_serve(settings, server, listener))


async def _serve(settings: Settings, server: str, listener: socket.socket) -> None:
    from pulse_ui.app import Dashboard, Server
    from pulse_ui.web.endpoints import OPEN_TO_NETWORK

    if not settings.is_loopback and not settings.open_to_network and await _is_open(settings):
        raise BadSettings(OPEN_TO_NETWORK)
    await Server(Dashboard(settings), on_serving=lambda: _log_start(settings, server)).serve(
        sockets=[listener]
    )


async def _is_open(settings: Settings) -> bool:
    """Return whether pulsed has no users. Unknown counts as no: each page checks again."""
    import pulse
    from pulse_ui.web.sessions import connect

    try:
        async with asyncio.timeout(tuning.START_LOOK.total_seconds()):
            account = await connect(settings.server)
    except (pulse.PulseError, TimeoutError):
        return False
    await account.close()
    return account.identity.user is None


def _log_start(settings: Settings, server: str) -> None:
    log.info("The dashboard is at %s, for pulsed at %s.", settings.public_url or settings.address, server)
    if not settings.is_loopback and settings.tls_certificate is None and settings.public_url is None:
        log.warning(
            "Passwords and pages go over the network in plain text. "
            "Use --tls-cert and --tls-key, or a proxy with HTTPS and --public-url."
        )
