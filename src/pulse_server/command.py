"""The script `pulsed`. A bare install of the SDK has it too, without the server's dependencies."""

from __future__ import annotations

import sys
from importlib.util import find_spec

# Import names of the packages in the extra `server`. uvloop is optional.
_NEEDED = ("asyncpg", "bcrypt", "cronsim", "grpc_health", "grpc_reflection", "uuid_utils")


def main() -> int:
    """Run `pulsed` with the arguments of this process, or name the extra that is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        print(
            "pulsed: the server needs more than the SDK. Run: pip install 'pulse-jobs[server]', "
            f"or 'pulse-jobs[embedded]' for a Postgres of its own. (Missing: {', '.join(missing)}.)",
            file=sys.stderr,
        )
        return 1
    from pulse_server.main import main as run

    return run()
