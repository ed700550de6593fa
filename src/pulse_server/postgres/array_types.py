"""The array types of the statements, told to the driver.

It knows the built-in types but not their arrays: each session asks its server about them before the first
statement that has one, which takes the server longer than most statements do. They are the same everywhere.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import asyncpg

# By element: its oid in pg_type, and that of its array.
_OIDS = {
    "bool": (16, 1000),
    "bytea": (17, 1001),
    "int4": (23, 1007),
    "int8": (20, 1016),
    "interval": (1186, 1187),
    "timestamptz": (1184, 1185),
    "uuid": (2950, 2951),
}


def _as_introspected(element: str, oid: int, array_oid: int) -> dict[str, Any]:
    """What the driver's own query would answer about the array."""
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


def tell_array_types(session: asyncpg.Connection[asyncpg.Record]) -> None:
    """Spare the session its question."""
    # The method is not documented. A driver that has another one asks, as it always did.
    with suppress(AttributeError, KeyError, TypeError):
        session.get_settings().register_data_types(TYPES)
