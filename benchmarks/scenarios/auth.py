"""The cost of users: a drain with and without them, in turn."""

from __future__ import annotations

import bcrypt

from benchmarks.figures import Figure
from benchmarks.scenarios.guarded import compare_drains
from benchmarks.stand import Stand

_COST = 12
_USER, _PASSWORD = "bench", "the right one"


async def measure(stand: Stand) -> list[Figure]:
    return await compare_drains(stand, "auth", "bcrypt users", users(), credentials())


def users() -> dict[str, str]:
    """Return the variables that give a server one user."""
    hashed = bcrypt.hashpw(_PASSWORD.encode(), bcrypt.gensalt(_COST)).decode()
    return {"PULSE_AUTH_USERS": f"{_USER}:{hashed}"}


def credentials() -> dict[str, str]:
    """Return the variables that make a client that user."""
    return {"PULSE_USER": _USER, "PULSE_PASSWORD": _PASSWORD}
