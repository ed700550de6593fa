"""Timeouts of the server that a starved machine reaches before the answer is there.

A test about one of them sets it itself. The processes that tests start have those of the product.
"""

from datetime import timedelta

from pulse_server.base import tuning
from pulse_server.database import connections, connector
from pulse_server.dispatch import service

_LONG = timedelta(seconds=60)


def have_patience() -> None:
    """Wait longer for the database, in this process."""
    tuning.STATEMENT_TIMEOUT = connector.CONNECT_TIMEOUT = _LONG
    connections.READ_TIMEOUT = connections.READY_TIMEOUT = service.CATCH_UP = _LONG
