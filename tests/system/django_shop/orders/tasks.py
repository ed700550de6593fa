"""The handlers of the shop: in threads, in the event loop, and in processes."""

import asyncio
import os
import time

from asgiref.sync import sync_to_async
from django.db import connection

from orders.models import Order
from pulse.django import app


def _pid_of_session() -> int:
    """Return the number of the session in the database, which names its connection. Zero for SQLite."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
        return int(pid)


@app.job("send-receipt")
def send_receipt(order: int, seconds: float = 0) -> dict[str, int]:
    """Count a receipt. Take this long for it."""
    Order.objects.filter(pk=order).update(receipts=1)
    time.sleep(seconds)
    return {"receipts": Order.objects.get(pk=order).receipts, "session": _pid_of_session()}


@app.job("asend-receipt")
async def asend_receipt(order: int, seconds: float = 0) -> dict[str, int]:
    """Do the same in the event loop."""
    await Order.objects.filter(pk=order).aupdate(receipts=1)
    await asyncio.sleep(seconds)
    found = await Order.objects.aget(pk=order)
    return {"receipts": found.receipts, "session": await sync_to_async(_pid_of_session)()}


@app.job("send-receipt-apart", process=True)
def send_receipt_apart(order: int, seconds: float = 0) -> dict[str, int]:
    """Do the same in a process."""
    Order.objects.filter(pk=order).update(receipts=1)
    time.sleep(seconds)
    return {
        "receipts": Order.objects.get(pk=order).receipts,
        "session": _pid_of_session(),
        "process": os.getpid(),
    }
