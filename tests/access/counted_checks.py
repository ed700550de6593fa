"""bcrypt for the server under test: counts every check, and delays checks for as long as a test wants."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import bcrypt
import pytest

from tests.eventually import PATIENCE_SECONDS


def hashed(password: str, cost: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


class CountedChecks:
    """The hashes of the checks, in order."""

    def __init__(self) -> None:
        self.hashes: list[str] = []
        self._gate = threading.Event()
        self._gate.set()
        self._begun = threading.Condition()

    def checkpw(self, password: bytes, hash_: bytes) -> bool:
        with self._begun:
            self.hashes.append(hash_.decode())
            self._begun.notify_all()
        assert self._gate.wait(PATIENCE_SECONDS)
        return _CHECKPW(password, hash_)

    @property
    def count(self) -> int:
        return len(self.hashes)

    @property
    def costs(self) -> list[int]:
        return [int(entry[4:6]) for entry in self.hashes]

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Let no check end while the block runs."""
        self._gate.clear()
        try:
            yield
        finally:
            self._gate.set()

    async def wait_for(self, count: int) -> None:
        """Return once `count` checks have begun."""
        await asyncio.to_thread(self._wait_for, count)

    def _wait_for(self, count: int) -> None:
        with self._begun:
            assert self._begun.wait_for(lambda: self.count >= count, PATIENCE_SECONDS)


_CHECKPW = bcrypt.checkpw


def count_checks(monkeypatch: pytest.MonkeyPatch) -> CountedChecks:
    checks = CountedChecks()
    monkeypatch.setattr(bcrypt, "checkpw", checks.checkpw)
    return checks
