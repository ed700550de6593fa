"""The script `pulsed`, and `python -m pulse_server`.

A bare install of the SDK has the script too, without the dependencies of the server.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

# Import names of the packages in the extra `server`. uvloop is optional.
_NEEDED = ("asyncpg", "bcrypt", "cronsim", "grpc_health", "grpc_reflection", "uuid_utils")


def main() -> int:
    """Run `pulsed` with the arguments of this process, or name the extra that is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        from pulse.installation import how_to_install

        print(
            f"pulsed: the server needs more than the SDK (missing: {', '.join(missing)}). "
            f"The extra `server` uses a Postgres of yours, `embedded` has one. {how_to_install('server')}",
            file=sys.stderr,
        )
        return 1
    from pulse_server.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
