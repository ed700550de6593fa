"""An application that uses Sentry, whose handlers run in processes. Started by a test as a script.

Each event is a line of JSON in the file `EVENTS`, once Sentry is asked to send what it has.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import pulse


class Written(Transport):
    unsent = ""

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.unsent += json.dumps(event, default=str) + "\n"

    def flush(self, timeout: float, callback: Any = None) -> None:
        with Path(os.environ["EVENTS"]).open("a") as file:
            file.write(self.unsent)
        self.unsent = ""


sentry_sdk.init(dsn="http://key@127.0.0.1:1/1", transport=Written)
sentry_sdk.set_tag("release-ring", "blue")
p = pulse.Pulse(os.environ["ADDRESS"], concurrency=1)
LIMIT = timedelta(milliseconds=100)


@p.middleware
async def tag(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    if call.arguments["tenant"]:
        sentry_sdk.set_tag("tenant", call.arguments["tenant"])
    await call_next()


def fail_for(tenant: str) -> None:
    if tenant:
        sentry_sdk.set_user({"id": tenant})
        sentry_sdk.add_breadcrumb(message=f"began {tenant}")
    raise ValueError(os.getpid())


@p.job("process", process=True)
def fail(tenant: str) -> None:
    fail_for(tenant)


@p.job("process-async", process=True)
async def fail_async(tenant: str) -> None:
    await asyncio.sleep(0)
    fail_for(tenant)


@p.job("hang", process=True, timeout=LIMIT)
def hang(tenant: str) -> None:
    while True:
        time.sleep(0.01)


@p.job("block", timeout=LIMIT)
async def block(tenant: str) -> None:
    ctypes.CDLL(None).sleep(3600)


if __name__ == "__main__":
    from pulse import tuning

    tuning.TIME_LIMIT_GRACE_SECONDS, tuning.BLOCKED_LOOP_SECONDS = 3.0, 0.3
    asyncio.run(p.run())
