"""The settings of our sessions, independent of the defaults of the role, the database and the server.

A pool adds what its statements need (database.py). A session has these from its start; behind a pooler each
transaction sets them. docs/figures.md#failover-and-poolers
"""

from __future__ import annotations

from collections.abc import Mapping

_ISOLATION = "default_transaction_isolation"

ALWAYS = {
    # Names of functions, operators and types are looked up here only. In another schema, such as
    # public, another role may have created a function that fits our arguments better. It would run
    # with our rights. Our own names are written as pulse.…
    "search_path": "pg_catalog",
    # Our statements lock rows that may have changed since the snapshot, and decide by the locked
    # version. At a stricter level these statements would fail instead.
    _ISOLATION: "read committed",
    # The pools bound their statements themselves. A migration may take hours.
    "statement_timeout": "0",
    "lock_timeout": "0",
}
# A migration may pause between two statements of its transaction. Elsewhere the role's own value applies: it
# ends the transaction of a pulsed that froze behind a pooler.
FOR_MIGRATIONS = ALWAYS | {"idle_in_transaction_session_timeout": "0"}
# These exist since PostgreSQL 14 and 17; an older server refuses a session that begins with them. A
# session that idles in a pool, or listens, must not be ended for it.
_OF_LATER_VERSIONS = ("idle_session_timeout", "transaction_timeout")
LIFT_LATER_TIMEOUTS = ", ".join(
    f"CASE WHEN pg_catalog.current_setting('{name}', true) <> '0' "
    f"THEN pg_catalog.set_config('{name}', '0', false) END"
    for name in _OF_LATER_VERSIONS
)


def set_for_session(settings: Mapping[str, str]) -> str:
    """The statement that sets these for a session. Not behind a pooler: its next client would get them."""
    return "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())


def begin_with(settings: Mapping[str, str]) -> str:
    """The statement that begins a transaction with these settings, which end with it."""
    listed = (f"SET LOCAL {name} = '{value}'" for name, value in settings.items() if name != _ISOLATION)
    return "; ".join(["BEGIN ISOLATION LEVEL READ COMMITTED", *listed])
