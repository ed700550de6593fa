"""Imported before grpc: sets environment variables for the core of grpc, and refuses gevent.

Existing variables take precedence.
"""

import os
import sys

# grpc reads them once. It would print a line for every failed handshake, many per second; the SDK logs the
# failure once.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# The fork handlers of grpc, on by default, abort the children of a process that uses grpc.aio, such
# as the ProcessPoolExecutor of a handler. Without them parent and children continue.
# docs/figures.md#forks-and-gevent
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def refuse_gevent() -> None:
    """Raise ImportError if gevent has replaced the threads or the select of this process."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and (monkey.is_module_patched("threading") or monkey.is_module_patched("select")):
        raise ImportError(
            "pulse does not work where gevent has patched threads or select: its calls would never return. "
            "Use monkey.patch_all(thread=False, select=False), or run the application in threads, as "
            "`gunicorn -k gthread` does."
        )


refuse_gevent()
