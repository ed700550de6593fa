"""An application with jobs of many kinds, for tests of the testing kit. Nothing listens at its address."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta

import pulse

p = pulse.Pulse("localhost:1")
s = pulse.SyncPulse("localhost:1")
seen: list[object] = []

HOUR = timedelta(hours=1)


@dataclass
class Receipt:
    to: str
    cents: int


@p.job("shop.mail", max_attempts=3)
async def send_mail(to: str, times: int = 0, *, ctx: pulse.Context) -> str:
    seen.append(to)
    if ctx.attempt <= times:
        raise ConnectionError("no route")
    return f"sent to {to}"


@p.job("shop.flaky", retry=pulse.Backoff(first=timedelta(seconds=10), factor=2, longest=HOUR, jitter=0))
async def flaky(n: int) -> None:
    raise ValueError(n)


@p.job("shop.order")
async def order(item: str, ctx: pulse.Context) -> str:
    charged = await ctx.step("charge", charge, item)
    await ctx.sleep(timedelta(days=3))
    who = await ctx.wait_for("approved", returns=str, timeout=timedelta(days=1))
    await send_mail.enqueue(to=who)
    return f"{charged} by {who}"


def charge(item: str) -> str:
    seen.append(("charged", item))
    return f"{item} charged"


@s.job("shop.double")
def double(n: int, ctx: pulse.SyncContext) -> int:
    seen.append(threading.current_thread())
    doubled = ctx.step("double", lambda: n * 2)
    if n:
        double.enqueue(0)
    return doubled


@p.job("shop.receipt")
def receipt(receipt: Receipt) -> Receipt:
    """A `def` handler of an async client, which enqueues with it."""
    if receipt.cents:
        send_mail.enqueue(to=receipt.to)
    return receipt


@s.job("shop.hourly")
def hourly() -> None:
    seen.append("tick")


s.every("shop.hourly", HOUR)


@s.job("shop.outcome")
def outcome(what: str) -> None:
    if what == "snooze":
        raise pulse.Snooze(timedelta(minutes=5))
    if what == "retry":
        raise pulse.Retry(after=timedelta(minutes=7))
    if what == "discard":
        raise pulse.Discard("never")
