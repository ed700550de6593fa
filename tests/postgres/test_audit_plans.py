"""The page of a topic reads its own entries of the audit, however many others have."""

from __future__ import annotations

import asyncpg

from pulse_server.database.connections import READ_PLANS
from pulse_server.views.records import _WITH_BITMAPS, FEW_ENTRIES, Audit, AuditFilter
from tests.postgres.query_plans import Plan, explain_text, settle_on
from tests.postgres.sessions import Connection
from tests.postgres_cluster import Databases

ENTRIES = 20_000
# Of few topics each is common, so the planner takes any other topic for rather common too.
OFTEN = "ARRAY['often-' || n % 4]"
FILL = f"""
INSERT INTO pulse.audit
    (id, at, changed, user_name, role, address, method, reason, outcome, topics, ids, asked)
SELECT gen_random_uuid(), now() - n * interval '1 s', 1, '', 'operator', '', 'PauseDispatch', '', 'OK',
    CASE WHEN n = {ENTRIES} THEN ARRAY['rare'] ELSE {OFTEN} END, '{{}}', '{{}}'
FROM generate_series(1, {ENTRIES}) AS n
"""


class ExplainingReads:
    """The reads of a database, of which each statement is explained too."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.plans: list[Plan] = []

    @property
    def reads(self) -> ExplainingReads:
        return self

    async def transact(self, name: str, work: object) -> object:
        async with self._connection.transaction():
            return await work(self._fetch)  # type: ignore[operator]

    async def _fetch(self, statement: str, *arguments: object) -> object:
        if statement != _WITH_BITMAPS:
            texts = [
                "'{" + ",".join(map(str, argument)) + "}'" if isinstance(argument, list) else f"'{argument}'"
                for argument in arguments
            ]
            explained = statement
            for number in range(len(texts), 0, -1):
                explained = explained.replace(f"${number}", texts[number - 1])
            self.plans.append(await explain_text(self._connection, explained))
        return await self._connection.fetch(statement, *arguments)


def test_page_of_a_topic_reads_no_entries_of_others(databases: Databases, template_database: str) -> None:
    async def read(dsn: str) -> dict[str, tuple[int, int]]:
        connection = await asyncpg.connect(dsn, timeout=60, command_timeout=60)
        try:
            await connection.execute(FILL)
            await connection.execute("VACUUM ANALYZE pulse.audit")
            await settle_on(connection, READ_PLANS)
            found = {}
            for topic in ("rare", "unused", "often-1"):
                database = ExplainingReads(connection)
                page = await Audit(database).page(AuditFilter(topic=topic), limit=10, token="")  # type: ignore[arg-type]
                touched = sum(plan.rows_touched("audit") for plan in database.plans)
                found[topic] = (len(page.entries), touched)
            return found
        finally:
            connection.terminate()

    with databases.temporary(template_database) as dsn:
        found = databases.run(read(dsn))
    assert found["rare"] == (1, 2)
    assert found["unused"] == (0, 0)
    entries, touched = found["often-1"]
    assert entries == 10
    assert touched <= FEW_ENTRIES + 1 + 4 * 11 + 4
