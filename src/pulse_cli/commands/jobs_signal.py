"""`pulse jobs signal`: send a signal to a job that waits for it, or will."""

from __future__ import annotations

import click

from pulse_cli.commands.declaring import Command
from pulse_cli.connection.connecting import connected
from pulse_cli.inputs.identifiers import job_id
from pulse_cli.inputs.payloads import read_payload
from pulse_cli.views.output import output_here


@click.command(
    "signal",
    cls=Command,
    examples="""
        pulse jobs signal 0199c0de-0000-7000-8000-000000000001 approved
        pulse jobs signal 0199c0de-0000-70 approved --payload '{"by": "Ann"}'
    """,
)
@click.argument("job", metavar="ID")
@click.argument("name", metavar="NAME")
@click.option("--payload", metavar="JSON", help="The value of the signal; null if not given.")
@click.option("--raw", is_flag=True, help="Send the value unchanged, without checking that it is JSON.")
def signal(job: str, name: str, payload: str | None, raw: bool) -> None:
    """Send a signal to a job, for its ctx.wait_for(NAME). One that comes first is kept."""
    value = read_payload(payload, None, None, raw=raw)
    with connected() as client:
        found = job_id(client, job)
        client.signal(found, name, value)
    output_here().show_done(f"Sent {name} to {found}.", {"id": found, "signal": name})
