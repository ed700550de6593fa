"""The root command: every command of `pulse`, in the order of its help."""

from __future__ import annotations

import click

from pulse_cli.commands.about import completion, version
from pulse_cli.commands.access import passwd, save, whoami
from pulse_cli.commands.access_contexts import config
from pulse_cli.commands.declaring import Group
from pulse_cli.commands.dispatch import dispatch
from pulse_cli.commands.jobs import jobs
from pulse_cli.commands.jobs_submit import submit
from pulse_cli.commands.lanes import lanes
from pulse_cli.commands.limits import limits
from pulse_cli.commands.overview import dead_letters, top, topics, workers
from pulse_cli.commands.schedules import schedules
from pulse_cli.commands.work import worker

COMMANDS = (
    *(submit, jobs, dead_letters, schedules, dispatch, topics, limits, lanes, workers, top),
    *(worker, whoami, save, config, passwd, completion, version),
)


@click.group(
    cls=Group,
    examples="""
        pulse submit send-email --payload '{"to": "a@b.c"}' --wait
        pulse jobs list --status DEAD_LETTERED
        pulse jobs get 0199c0de-0000-7000-8000-000000000001
        pulse jobs retry --topic send-email --status DEAD_LETTERED
        pulse top
        pulse dispatch pause --reason 'database maintenance'
        pulse save creds
    """,
)
def pulse() -> None:
    """Operate a pulse job queue.

    The address of pulsed is --addr, then PULSE_ADDR, then what `pulse save creds` stored, then
    localhost:50051.
    """


for _command in COMMANDS:
    pulse.add_command(_command)
