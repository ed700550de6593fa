"""Checks passwords, off the event loop and at the same cost whether the user exists or not."""

from __future__ import annotations

import asyncio
import hmac
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256

import bcrypt

from pulse_server.access.users import MAX_PASSWORD_BYTES, User
from pulse_server.domain.errors import Unavailable

# A check of a bcrypt hash takes 90 to 350 ms of a core. One at a time: with two, the first burst of a flood
# took both cores of a small machine for three seconds. Accepted credentials are not checked again.
PASSWORD_THREADS = 1
# Checks that may wait for the thread: two or three seconds' worth, less than the timeout of a call of the
# SDK.
PASSWORD_LINE = 8
# A lower priority than the threads that move jobs, which win a contested core. Linux only.
PASSWORD_NICENESS = 10


class Passwords:
    """A few threads with a short line in front of them; Unavailable if the line is full."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(
            PASSWORD_THREADS, thread_name_prefix="password", initializer=_step_back
        )
        self._under_way = 0

    async def match(self, user: User | None, password: bytes, highest_cost: int) -> bool:
        """Whether the password is the user's. Always False for None, after the same time.

        `highest_cost` is the highest bcrypt cost among all users' hashes, 0 if no user has a hash.
        If any user has one, every check runs bcrypt: the response time must not reveal which users
        have plain passwords.
        """
        if len(password) > MAX_PASSWORD_BYTES or b"\0" in password:
            # bcrypt would repeat a password after a NUL: "a" and "a\0a" are the same to it.
            return False
        if not highest_cost:
            return _is_equal(user, password)
        hashed = user.secret if user is not None and user.has_hash else _unmatchable_hash(highest_cost)
        matches = await self._in_thread(password, hashed)
        if user is not None and user.has_hash:
            return matches
        return _is_equal(user, password)

    def close(self) -> None:
        """Stop checking. Does not wait for the check under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, password: bytes, hashed: str) -> bool:
        if self._under_way >= PASSWORD_THREADS + PASSWORD_LINE:
            raise Unavailable("The server has more passwords to check than it can. Try again in a moment.")
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, bcrypt.checkpw, password, hashed.encode()
            )
        finally:
            self._under_way -= 1


def _is_equal(user: User | None, password: bytes) -> bool:
    secret = user.secret.encode() if user is not None else b""
    # Digests: the time of a comparison of the texts would reveal whether their lengths are equal.
    matches = hmac.compare_digest(sha256(secret).digest(), sha256(password).digest())
    return matches and user is not None


def _unmatchable_hash(cost: int) -> str:
    """A hash that costs as much to check as a real one, and that matches no known password."""
    return f"$2b${cost:02d}${'.' * 53}"


def _step_back() -> None:
    """Lower the priority of this thread, below the threads that move jobs."""
    if sys.platform == "linux":  # elsewhere a priority belongs to the whole process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PASSWORD_NICENESS)
