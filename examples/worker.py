"""A worker: runs the jobs of three topics in this process, until Ctrl-C.

    pulsed                           # terminal 1: the server
    python examples/worker.py        # terminal 2: this worker; start as many as you like
    python examples/producer.py      # terminal 3: hands in jobs

Set PULSE_ADDR=host:port if the server is not at localhost:50051.
"""

import asyncio
import logging
import sys
from dataclasses import dataclass
from datetime import timedelta

import pulse

p = pulse.Pulse(concurrency=20, timeout=timedelta(seconds=3))  # runs at most 20 jobs at a time


@dataclass
class Email:
    to: str
    subject: str


@p.job("send-email")
async def send_email(email: Email, ctx: pulse.Context) -> None:
    """Takes one document: JSON that is checked against the dataclass before the handler runs."""
    ctx.logger.info("send-email: %r to %s", email.subject, email.to)


@p.job("resize-photo")
async def resize_photo(path: str, width: int = 800) -> None:
    """Takes keyword parameters, and no context because it needs none."""
    await asyncio.sleep(0.1)  # stands for the work; a plain `def` would run in a thread


@p.job("charge-card")
async def charge_card(ctx: pulse.Context, customer: str, cents: int) -> None:
    """Runs twice if its worker dies before it reports, like any job: ctx.job_id is a key for the bank."""
    if cents <= 0:
        raise pulse.Discard(f"{cents} cents cannot be charged")  # trying again would not help
    if ctx.attempt == 1:  # other exceptions are failures too, and are tried again after 1, 4, 9, … s
        raise pulse.Retry(after=timedelta(seconds=2), reason="the card network is busy")
    ctx.logger.info("charge-card: %s paid %d cents, on attempt %d", customer, cents, ctx.attempt)


async def main() -> None:
    await p.list_jobs(limit=1)  # ends this example if there is no server; run() would wait for one
    await p.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        asyncio.run(main())
    except pulse.Unavailable as error:
        sys.exit(str(error))
