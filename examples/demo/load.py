"""The load of a small shop, until Ctrl-C."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta

import pulse
from examples.demo import shop
from examples.demo.scene import Scene
from pulse.jobs.submissions import EnqueueOptions

_SECONDS_BETWEEN_REPORTS = 15
_IMAGES_IN_A_BURST = 40
_PRODUCTS_OF_A_CATALOG = 60


@dataclass(frozen=True, slots=True)
class Order:
    """A job to be submitted."""

    topic: str
    args: dict[str, object]
    options: EnqueueOptions = field(default_factory=EnqueueOptions)


async def keep_up(scene: Scene, is_over: Callable[[], bool]) -> None:
    """Submit jobs at their different rates, and show the state of the queue now and then, until the end."""
    await _declare_schedules(scene.client)
    async with AsyncExitStack() as stack:
        work = [_submit(scene.client, rate, orders) for rate, orders in trades()]
        tasks = [asyncio.create_task(part) for part in (*work, _return_packages(scene.client))]
        for task in tasks:
            stack.push_async_callback(_end, task)
        for second in itertools.count(1):
            if is_over():
                return
            # Ends early only if one of them failed, which is what this raises.
            done, _ = await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if second % _SECONDS_BETWEEN_REPORTS == 0:
                await _report(scene)


def trades() -> list[tuple[float, Iterator[list[Order]]]]:
    """Return what is ordered, and how often in a second on average; a burst counts as one."""
    return [
        (2.5, _confirmations()),
        (1.0, _charges()),
        (1.5, _webhooks()),
        (0.3, _reminders()),
        (0.25, _exports()),
        (1 / 25, _image_bursts()),
        (1 / 40, _catalogs()),
        (0.5, _products()),
    ]


async def _submit(client: pulse.Pulse, rate: float, orders: Iterator[list[Order]]) -> None:
    for batch in orders:
        for order in batch:
            await client.enqueue(order.topic, order.args, **order.options)
        await asyncio.sleep(random.expovariate(rate))


async def _return_packages(client: pulse.Pulse) -> None:
    """Return an order now and then. Most packages arrive, and their jobs get a signal."""
    while True:
        job = await client.enqueue("orders/return", {"order": _order()})
        await asyncio.sleep(random.uniform(5, 12))
        if random.random() < 0.8:
            condition = random.choice(("as new", "as new", "damaged"))
            with contextlib.suppress(pulse.InvalidTransition, pulse.NotFound):  # canceled or deleted
                await client.signal(job.id, shop.PACKAGE_ARRIVED, condition)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _declare_schedules(client: pulse.Pulse) -> None:
    await client.schedule("stock/sync", None, pulse.Every(timedelta(seconds=20)), name="stock-sync")
    await client.schedule("reports/sales", None, pulse.Cron("*/2 * * * *"), name="sales-so-far")
    await client.schedule(
        "reports/sales",
        None,
        pulse.Cron("0 9 * * 1-5", tz="Europe/Paris"),
        name="sales-report",
        metadata={"for": "management"},
    )


async def _report(scene: Scene) -> None:
    topics = await scene.client.topics()
    counts = [
        (sum(topic.last_minute.completed for topic in topics), "done in the last minute"),
        (sum(topic.running for topic in topics), "under way"),
        (sum(topic.ready for topic in topics), "in line"),
        (sum(topic.waiting for topic in topics), "for later"),
        (sum(topic.dead_lettered for topic in topics), "in the dead letters"),
    ]
    scene.narrator.show("server", "jobs: " + ", ".join(f"{count} {words}" for count, words in counts))


# ------------------------------------------------------------ what is ordered


def _confirmations() -> Iterator[list[Order]]:
    while True:
        yield [Order("orders/confirm", {"order": _order()})]


def _charges() -> Iterator[list[Order]]:
    while True:
        order, customer = _order(), random.choice(("ada", "grace", "alan", "edsger"))
        args: dict[str, object] = {"order": order, "cents": random.randint(500, 90_000)}
        metadata = {"customer": customer, "region": random.choice(("eu", "us"))}
        yield [Order("payments/charge", args, {"max_attempts": 3, "metadata": metadata, "priority": 5})]


def _webhooks() -> Iterator[list[Order]]:
    hosts = ("crm.example.com", "hooks.example.org", "shipping.example.net", "erp.example.com")
    while True:
        (host,) = random.choices(hosts, weights=(10, 10, 10, 1))
        args: dict[str, object] = {"order": _order(), "host": host}
        yield [Order("webhooks/deliver", args, {"max_attempts": 3, "metadata": {"host": host}})]


def _reminders() -> Iterator[list[Order]]:
    while True:
        delay = timedelta(seconds=random.randint(10, 240))
        customer = f"customer-{random.randint(100, 999)}"
        yield [Order("reminders/send", {"customer": customer}, {"delay": delay})]


def _exports() -> Iterator[list[Order]]:
    while True:
        table = random.choice(("sales", "customers", "returns"))
        args: dict[str, object] = {"table": table, "rows": random.randint(100, 5_000)}
        yield [Order("exports/csv", args, {"max_attempts": 2})]


def _image_bursts() -> Iterator[list[Order]]:
    while True:
        album = random.randint(100, 999)
        burst = [
            Order("images/resize", {"path": f"album-{album}/{number}.jpg", "width": 1280}, {"priority": -5})
            for number in range(_IMAGES_IN_A_BURST)
        ]
        yield [
            *burst,
            Order("images/resize", {"path": f"album-{album}/cover.jpg", "width": 640}, {"priority": 10}),
        ]


def _catalogs() -> Iterator[list[Order]]:
    while True:
        seller = random.choice(("big-books", "mega-media"))
        yield [_product(seller) for _ in range(_PRODUCTS_OF_A_CATALOG)]


def _products() -> Iterator[list[Order]]:
    while True:
        yield [_product(random.choice(("corner-shop", "ada-antiques", "tea-and-toys")))]


def _product(seller: str) -> Order:
    return Order("catalog/import", {"product": f"{seller}/{random.randint(1_000, 9_999)}"}, {"lane": seller})


def _order() -> int:
    return random.randint(10_000, 99_999)
