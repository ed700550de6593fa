"""Registers the array types of the statements with the driver.

The driver knows the built-in types but not their arrays: each session queries its server for them before the
first statement that has one. This takes about 20 ms for the first statement of a session and 30 ms in all,
at the start of a server and after a failover. They are the same on every server.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import asyncpg

# By element type: its oid in pg_type, and the oid of its array type.
_OIDS = {
    "bool": (16, 1000),
    "bytea": (17, 1001),
    "date": (1082, 1182),
    "float8": (701, 1022),
    "int4": (23, 1007),
    "int8": (20, 1016),
    "interval": (1186, 1187),
    "timestamptz": (1184, 1185),
    "uuid": (2950, 2951),
}


def _as_introspected(element: str, oid: int, array_oid: int) -> dict[str, Any]:
    """The array as the driver's own query returns it."""
    return {
        "oid": array_oid,
        "ns": "pg_catalog",
        "name": f"_{element}",
        "kind": "b",
        "basetype": None,
        "elemtype": oid,
        "elemdelim": ",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
        "depth": 0,
        "basetype_name": None,
        "elemtype_name": element,
        "range_subtype_name": None,
    }


TYPES = [_as_introspected(element, *oids) for element, oids in _OIDS.items()]


def register_array_types(session: asyncpg.Connection[asyncpg.Record]) -> None:
    """Save the session its query."""
    # The method is not documented, and nothing depends on it: a driver without it sends its query.
    with suppress(AttributeError, KeyError, TypeError):
        session.get_settings().register_data_types(TYPES)
