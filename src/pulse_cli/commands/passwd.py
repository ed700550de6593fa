"""`pulse passwd`."""

from __future__ import annotations

import sys

import click

from pulse_cli import tuning
from pulse_cli.commands.declaring import Command
from pulse_cli.failures import Misuse
from pulse_cli.inputs.questions import new_password
from pulse_cli.views.output import output_here
from pulse_cli.views.terminal import hint


@click.command(
    cls=Command,
    short_help="Print the bcrypt hash of a password.",
    connects=False,
    examples="""
        pulse passwd
        printf %s "$SECRET" | pulse passwd --password-stdin
    """,
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option(
    "--cost",
    type=click.IntRange(4, 31),
    default=tuning.BCRYPT_COST,
    show_default=True,
    metavar="N",
    help="The work factor: one more doubles the time that a check takes.",
)
def passwd(password_stdin: bool, cost: int) -> None:
    """Ask for a password and print its bcrypt hash, for PULSE_AUTH_USERS and the users file of pulsed."""
    password = new_password("Password", from_stdin=password_stdin).encode()
    if not password:
        raise Misuse("The password is empty. Choose one that is not.")
    if len(password) > tuning.PASSWORD_BYTES:
        raise Misuse(
            f"The password has {len(password)} bytes, and bcrypt looks at {tuning.PASSWORD_BYTES} only. "
            "Choose a shorter one."
        )
    if b"\0" in password:
        raise Misuse("The password contains a NUL character, at which bcrypt would stop. Choose another one.")
    import bcrypt

    hashed = bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()
    output = output_here()
    if output.form == "plain":
        click.echo(hashed)
    else:
        output.show_done(hashed, {"hash": hashed})
    if output.is_for_people and sys.stdout.isatty():
        hint("Give it to pulsed as name:hash or name:hash:role, in single quotes: a shell eats $ otherwise.")
