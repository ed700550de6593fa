"""Tests of applications: jobs run in the test, without a server. See docs/how-to/test-your-jobs.md."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.testing.kit import Kit as Kit
    from pulse.testing.pulsed import Pulsed as Pulsed
    from pulse.testing.working import Ran as Ran
else:
    # On first use: the pytest plugin is in this package, and every run of pytest loads it.
    _MODULES = {
        "Kit": "pulse.testing.kit",
        "Pulsed": "pulse.testing.pulsed",
        "Ran": "pulse.testing.working",
    }

    # Of the modules of the server, which are imported later: beside the start of its Postgres.
    _NEEDED = ("asyncpg", "bcrypt", "cronsim", "grpc_health", "uuid_utils")

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'pulse.testing' has no attribute {name!r}")
        try:
            for needed in _NEEDED:
                import_module(needed)
            return getattr(import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:
            from pulse.installation import how_to_install

            raise ModuleNotFoundError(
                f"pulse.testing needs {error.name}, which is not installed. {how_to_install('testing')}",
                name=error.name,
            ) from None


__all__ = ["Kit", "Pulsed", "Ran"]
