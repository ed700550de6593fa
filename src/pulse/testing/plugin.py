"""The pytest plugin, which pytest finds by its entry point. It imports little before a fixture is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pulse.wire.redirection import Refusing, current_redirection, redirected

if TYPE_CHECKING:
    from pulse.testing import Kit, Pulsed

_SETTING = "pulse_connect"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _SETTING, "Let clients of pulse connect to their own addresses.", type="bool", default=False
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    # Before conftest.py, which may import the application and use its client.
    _refuse_connections(early_config)


def pytest_configure(config: pytest.Config) -> None:
    _refuse_connections(config)


def _refuse_connections(config: pytest.Config) -> None:
    if current_redirection() is None:
        stack = ExitStack()
        # Chosen in any case: pulse.django would refuse.
        stack.enter_context(redirected(None if config.getini(_SETTING) else Refusing()))
        config.add_cleanup(stack.close)


@pytest.fixture
def pulse_kit() -> Iterator[Kit]:
    """A queue for this test alone. Every client of the process uses it."""
    from pulse.testing import Kit

    with Kit() as kit:
        yield kit


@pytest.fixture
def pulse_connect() -> Iterator[None]:
    """Lets the clients of this test connect to their own addresses."""
    with redirected(None):
        yield


@pytest.fixture(scope="session")
def _pulsed() -> Iterator[Pulsed]:
    """A pulsed for the whole run, or for one worker of pytest-xdist."""
    from pulse.testing import Pulsed

    with Pulsed() as pulsed:
        yield pulsed


@pytest.fixture
def pulse_server(_pulsed: Pulsed) -> Iterator[Pulsed]:
    """A real pulsed. Every client of the process uses it. The jobs of a test end with the test."""
    with _pulsed.lent():
        yield _pulsed
