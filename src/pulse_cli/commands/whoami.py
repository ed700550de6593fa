"""`pulse whoami`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.text.moments import now
from pulse_cli.views.descriptions import facts
from pulse_cli.views.output import output_here
from pulse_cli.views.shapes import identity_shape
from pulse_cli.views.tables import Line

if TYPE_CHECKING:
    import pulse


@click.command(
    cls=Command,
    short_help="Show who the server takes you for.",
    examples="""
        pulse whoami
        pulse whoami --output json | jq -r .role
        pulse whoami --output json | jq -e '.methods | index("RetryJobs")'
    """,
)
def whoami() -> None:
    """Show who the server takes you for. The JSON also lists the calls that this user may make."""
    with connected() as client:
        identity = client.whoami()
    output_here().show_one(identity_shape(identity), lambda: _describe(identity))


def _describe(identity: pulse.Identity) -> Iterator[Line]:
    yield from facts(
        ("User", identity.user or "nobody: this server asks for no password"),
        ("Role", identity.role),
        present=now(),
    )
