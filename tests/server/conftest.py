"""`pulsed check` as a call."""

import os
from collections.abc import Callable
from datetime import timedelta

import pytest

from pulse_server.main import main

CANARY = "tweety-4711"
Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Run `pulsed check` with these variables. Returns the exit code and the output as one long line."""

    def run(*flags: str, **environment: str) -> tuple[int, str]:
        for name in [name for name in os.environ if name.startswith(("PULSE_", "DB_"))]:
            monkeypatch.delenv(name)
        for name, value in {"PULSE_GRPC_ADDR": "127.0.0.1:0", **environment}.items():
            monkeypatch.setenv(name, value)
        if "@127.0.0.1:1/" in environment.get("DB_HOST", ""):
            # No server listens there.
            monkeypatch.setattr("pulse_server.checks.CHECK_PATIENCE", timedelta(milliseconds=1))
        code = main(["check", *flags])
        printed = capsys.readouterr()
        assert printed.err == ""
        return code, " ".join(printed.out.split())

    return run
