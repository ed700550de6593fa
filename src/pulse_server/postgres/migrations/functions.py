"""The functions of the database: a file each, with the fragments of the statements.

Applications call the functions in sql/interface/. Their names have no version: a new option is a
parameter with a default, at the end. Servers and the interface call the functions in
sql/functions/. Their names end with a version. Servers of two versions share the database during a
rollout. So the text under a name may be improved, but a change of signature or meaning takes the
next number. The checksum of the file is the function's comment, so that it is dropped with the
function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import asyncpg

from pulse_server.postgres.connector import Session, own_transaction
from pulse_server.postgres.statements import Rows, statements, with_fragments

_SQL = statements("migrations.sql", "privileges.sql")


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@cache
def known_functions() -> Sequence[Function]:
    sql = resources.files("pulse_server.postgres").joinpath("sql")
    functions = [
        Function(file.name.removesuffix(".sql"), with_fragments(file.read_text(encoding="utf-8")))
        for folder in (sql.joinpath("functions"), sql.joinpath("interface"))
        for file in folder.iterdir()
    ]
    return sorted(functions, key=lambda function: function.name)


async def outdated_functions(connection: Session, functions: Sequence[Function]) -> list[Function]:
    """The functions that the database lacks, or has with other content."""
    async with own_transaction(connection):
        rows = await connection.fetch(_SQL["list_functions"])
    installed = {row["name"]: row["checksum"] for row in rows}
    return [function for function in functions if installed.get(function.name) != function.checksum]


def missing_functions(rows: Rows) -> list[str]:
    """The functions that this server calls and the rows of list_functions lack.

    Other content is accepted: in a rollout the database may have functions of newer servers under
    these names.
    """
    installed = {row["name"] for row in rows}
    return [function.name for function in known_functions() if function.name not in installed]


async def install_functions(connection: Session, functions: Sequence[Function]) -> None:
    """Create or replace the functions, all or none."""
    async with connection.transaction():
        # They call each other, and are created in the order of their names.
        await connection.execute("SET LOCAL check_function_bodies = off")
        for function in functions:
            await _install(connection, function)
        for row in await connection.fetch(_SQL["grants_of_functions"], [entry.name for entry in functions]):
            await connection.execute(row["statement"])


async def _install(connection: Session, function: Function) -> None:
    """Create or replace a function. Roles keep their rights to it."""
    try:
        async with connection.transaction():
            await _create(connection, function)
    except asyncpg.AmbiguousFunctionError:
        # It has a new parameter, and would stand beside the function without it.
        grants = await connection.fetch(_SQL["grants_on_function"], function.name)
        await connection.execute(f"DROP FUNCTION pulse.{function.name}")
        await _create(connection, function)
        for row in grants:
            await connection.execute(row["statement"])


async def _create(connection: Session, function: Function) -> None:
    await connection.execute(function.sql)
    # Every role may call a new function, unless this is taken away.
    await connection.execute(f"REVOKE EXECUTE ON FUNCTION pulse.{function.name} FROM PUBLIC")
    await connection.execute(f"COMMENT ON FUNCTION pulse.{function.name} IS '{function.checksum}'")
