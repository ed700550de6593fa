"""What the workers of the last act can do: the jobs of a shop, which take their time and sometimes fail.

How long each takes and how often it fails is chance, so that the dashboard has something to show.
"""

import asyncio
import random
from datetime import timedelta

import pulse

OFFICE = "office-1"
MEDIA = "media-1"
PACKAGE_ARRIVED = "package-arrived"
_PARTS_OF_AN_EXPORT = 20


def register_office(p: pulse.Pulse) -> None:
    """Register many short jobs, some of which depend on other people's servers."""

    @p.job("orders/confirm")
    async def confirm_order(order: int) -> None:
        await asyncio.sleep(random.uniform(0.05, 0.2))
        if random.random() < 0.02:
            raise ConnectionError(f"mail server closed the connection while sending order {order}")

    @p.job("payments/charge")
    async def charge(order: int, cents: int) -> None:
        await asyncio.sleep(random.uniform(0.3, 0.9))
        if random.random() < 0.005:  # nothing that another attempt would fix
            raise pulse.Discard(f"card ending in {random.randint(1000, 9999)} was declined (code 51)")
        if random.random() < 0.06:
            raise TimeoutError(f"the bank did not answer within 5.{random.randint(10, 99)} s (order {order})")

    @p.job("webhooks/deliver")
    async def deliver_webhook(order: int, host: str) -> None:
        await asyncio.sleep(random.uniform(0.1, 0.4))
        # One receiver is down for good; the others have their moments.
        if host == "erp.example.com" or random.random() < 0.04:
            raise ConnectionError(f"POST https://{host}/orders/{order} answered 503 Service Unavailable")

    @p.job("orders/return")
    async def take_back(order: int, ctx: pulse.Context) -> dict[str, object]:
        label = await ctx.step("label", _print_label, order)
        await ctx.sleep(timedelta(seconds=2), name="pickup")
        try:
            condition = await ctx.wait_for(PACKAGE_ARRIVED, timeout=timedelta(seconds=20), returns=str)
        except pulse.SignalTimeout:
            return {"label": label, "refund": 0, "reason": "no package arrived"}
        cents = await ctx.step("refund", _refund, order, condition)
        return {"label": label, "refund": cents, "condition": condition}

    # Sellers take turns: one that imports its whole catalog does not delay the others.
    @p.job("catalog/import", running=4, per_lane=2, turns=True)
    async def import_product(product: str) -> None:
        await asyncio.sleep(random.uniform(0.4, 1.2))

    @p.job("reminders/send")
    async def send_reminder(customer: str) -> None:
        await asyncio.sleep(random.uniform(0.05, 0.15))

    @p.job("stock/sync")
    async def sync_stock() -> None:
        await asyncio.sleep(random.uniform(1, 3))

    @p.job("reports/sales")
    async def report_sales() -> None:
        await asyncio.sleep(random.uniform(2, 5))


def register_media(p: pulse.Pulse) -> None:
    """Register a few long jobs."""

    @p.job("images/resize")
    async def resize_image(path: str, width: int) -> None:
        await asyncio.sleep(random.uniform(0.3, 1.2))
        if random.random() < 0.004:
            raise pulse.Discard(
                f"{path} ends after {random.randint(1_000, 99_999)} bytes, in the middle of a row"
            )

    @p.job("exports/csv")
    async def export_csv(table: str, rows: int, ctx: pulse.Context) -> dict[str, object]:
        seconds = random.uniform(4, 15)
        for part in range(_PARTS_OF_AN_EXPORT):
            ctx.progress(part / _PARTS_OF_AN_EXPORT, f"{rows * part // _PARTS_OF_AN_EXPORT} of {rows} rows")
            await asyncio.sleep(seconds / _PARTS_OF_AN_EXPORT)
        if table == "returns" and random.random() < 0.3:
            line = random.randint(2, rows)
            raise ValueError(f"{table}.csv, line {line}: 'n/a' is not a number")
        return {"file": f"exports/{table}-{random.randint(100, 999)}.csv", "rows": rows}


async def _print_label(order: int) -> str:
    await asyncio.sleep(random.uniform(0.1, 0.3))
    return f"RMA-{order}"


async def _refund(order: int, condition: str) -> int:
    await asyncio.sleep(random.uniform(0.2, 0.6))
    return random.randint(500, 90_000) // (2 if condition == "damaged" else 1)
