"""The order of the tests: those that wait for seconds come first, a share of them in each process.

Else they come together at the end, where nothing is left to run beside their waits.
"""

from __future__ import annotations

import gc
from itertools import chain

import pytest

_LONG = (
    "tests/examples/",
    "tests/faults/test_bad_days",
    "tests/faults/test_chaos",
    "tests/faults/test_fail",
    "tests/postgres/test_lifecycle_machine",
    "tests/server/test_pulsed_processes",
    "tests/system/",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the long tests first, in each of the equal parts that pytest-xdist deals out at the start."""
    parts = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [item for item in items if item.nodeid.startswith(_LONG)]
    short = [item for item in items if not item.nodeid.startswith(_LONG)]
    shares = [
        long[part::parts] + short[part * len(short) // parts : (part + 1) * len(short) // parts]
        for part in range(parts)
    ]
    items[:] = chain.from_iterable(shares)


def pytest_collection_finish() -> None:
    """Take the thousands of tests out of the collector's sight: it would look at them again and again."""
    gc.collect()
    gc.freeze()
