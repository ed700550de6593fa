"""Asking Postgres how it would run a statement, and reading the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pulse_server.database.statements import statements
from pulse_server.jobs.reads import Listing
from tests.postgres.sessions import Connection
from tests.postgres.sql_files import FILES

_SQL = {name: statement for file in FILES for name, statement in statements(file).items()}


@dataclass(frozen=True)
class Plan:
    """A plan as EXPLAIN prints it."""

    root: dict[str, Any]

    def nodes(self) -> Iterator[dict[str, Any]]:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.get("Plans", ()))

    def scans_of(self, table: str) -> list[dict[str, Any]]:
        """The nodes that read the table."""
        return [
            node
            for node in self.nodes()
            if node.get("Relation Name") == table and node["Node Type"] != "ModifyTable"
        ]

    def indexes_of(self, table: str) -> list[str]:
        """The access paths to the table: names of indexes, or of the scan where it uses none."""
        return sorted(node.get("Index Name", node["Node Type"]) for node in self.scans_of(table))

    def jobs_indexes(self) -> list[str]:
        return self.indexes_of("jobs")

    def sorts_over_jobs(self) -> list[dict[str, Any]]:
        """The sorts whose input is a bare scan of the jobs table: nothing has cut it to a batch."""
        return [
            node
            for node in self.nodes()
            if "Sort" in node["Node Type"]
            and any(child.get("Relation Name") == "jobs" for child in _inputs_up_to_a_limit(node))
        ]

    def rows_touched(self, table: str = "jobs") -> int:
        """How many rows of the table the statement really looked at."""
        return sum(
            round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
            for node in self.scans_of(table)
        )

    def __str__(self) -> str:
        return json.dumps(self.root, indent=1)


def _inputs_up_to_a_limit(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for child in node.get("Plans", ()):
        yield child
        if child["Node Type"] != "Limit":
            yield from _inputs_up_to_a_limit(child)


async def explain(connection: Connection, name: str, *args: str) -> Plan:
    """Run a section with the arguments, given as SQL literals. Returns its plan and leaves no other trace."""
    await connection.execute(f"PREPARE planned AS {_SQL[name]}")
    try:
        given = f" ({', '.join(args)})" if args else ""
        return await explain_text(connection, f"EXECUTE planned{given}")
    finally:
        await connection.execute("DEALLOCATE planned")


async def pages_read(connection: Connection, name: str, arguments: str) -> int:
    """How many pages of tables and indexes a section looks at. It is committed."""
    await connection.execute(f"PREPARE measured AS {_SQL[name]}")
    given = f" ({arguments})" if arguments else ""
    explained = await connection.fetchval(
        f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE measured{given}"
    )
    await connection.execute("DEALLOCATE measured")
    plan = json.loads(explained)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def explain_listing(connection: Connection, listing: Listing, statement: str) -> Plan:
    """Run a list or a count as listing.py puts it together. Returns its plan."""
    texts = [
        "{" + ",".join(argument) + "}" if isinstance(argument, list) else str(argument)
        for argument in listing.arguments
    ]
    literals = ["'" + text.replace("'", "''") + "'" for text in texts]
    for number in range(len(literals), 0, -1):
        is_number = isinstance(listing.arguments[number - 1], int)
        statement = statement.replace(
            f"${number}", literals[number - 1].strip("'") if is_number else literals[number - 1]
        )
    return await explain_text(connection, statement)


async def explain_text(connection: Connection, statement: str) -> Plan:
    """Run a statement. Returns its plan, with what really happened, and leaves no other trace."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        explained = await connection.fetchval(f"EXPLAIN (FORMAT JSON, ANALYZE, TIMING OFF) {statement}")
    finally:
        await transaction.rollback()
    return Plan(json.loads(explained)[0]["Plan"])


async def settle_on(connection: Connection, plans: dict[str, str]) -> None:
    """Plan from here on as one of the server's pools does."""
    await connection.execute("RESET ALL")
    for name, value in plans.items():
        await connection.execute(f"SET {name} = {value}")
