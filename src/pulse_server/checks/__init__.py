"""`pulsed check`: tells what is wrong with a configuration before anything is served with it."""

from pulse_server.checks.checking import check

__all__ = ["check"]
