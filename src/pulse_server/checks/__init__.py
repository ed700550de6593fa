"""`pulsed check`: reports problems in a configuration before a server starts with it."""

from pulse_server.checks.checking import check

__all__ = ["check"]
