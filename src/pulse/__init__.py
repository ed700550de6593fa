"""pulse: background jobs with Postgres as the only infrastructure.

    import pulse

    p = pulse.Pulse("localhost:50051")

    @p.job("send-email")
    async def send_email(to: str, subject: str = "Hello") -> None: ...

    p.cron("send-email", "0 9 * * 1-5", {"to": "a@b.c"}, tz="Europe/Paris")

    await send_email.enqueue("a@b.c")
    await p.run()

`SyncPulse` has the same verbs, blocking.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pulse import quiet  # noqa: F401 - before everything that imports grpc

if TYPE_CHECKING:
    from pulse import sql as sql
    from pulse.api import *  # noqa: F403
    from pulse.api import __all__ as __all__
else:
    # The SDK is imported on first use of a name: pulsed only needs the stubs, and starts faster.

    def __getattr__(name: str) -> object:
        if find_spec(f"pulse.{name}") is not None:
            return import_module(f"pulse.{name}")
        api = import_module("pulse.api")
        if not hasattr(api, name):
            raise AttributeError(f"module 'pulse' has no attribute {name!r}")
        value = globals()[name] = getattr(api, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *import_module("pulse.api").__all__})
