"""Settings as the tests read them, and the problems that are found."""

import pytest

from pulse_server.settings import (
    BadSettings,
    read_settings,
)

URL = "postgres://pulse:secret@db.example/pulse"


LOOPBACK = "127.0.0.1"


def problems_of(**variables: str) -> tuple[str, ...]:
    """What reading these variables complains about."""
    with pytest.raises(BadSettings) as caught:
        read_settings({"DB_HOST": URL} | variables)
    return caught.value.problems
