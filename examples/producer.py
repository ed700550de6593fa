"""A producer: enqueues jobs in every way there is, then reads the status of one.

    pulsed                           # terminal 1: the server
    python examples/worker.py        # terminal 2: runs the jobs
    python examples/producer.py      # terminal 3: this

Set PULSE_ADDR=host:port if the server is not at localhost:50051.
"""

import asyncio
import sys
from datetime import timedelta

import pulse


async def main() -> None:
    async with pulse.Pulse(timeout=timedelta(seconds=3)) as p:
        # The arguments are what the handler takes. Once enqueue returns, the job is safe in the database.
        welcome = await p.enqueue("send-email", {"to": "ada@example.com", "subject": "Welcome"})
        print(f"stored:    {welcome.topic} {welcome.id}")

        reset = {"to": "bob@example.com", "subject": "Reset your password"}
        urgent = await p.enqueue("send-email", reset, priority=10)
        print(f"urgent:    {urgent.id} runs before everything of a lower priority")

        reminder = {"to": "ada@example.com", "subject": "Your trial ends"}
        later = await p.enqueue("send-email", reminder, delay=timedelta(seconds=5))
        print(f"delayed:   {later.id} runs in 5 seconds")

        # However often this is repeated, even by another run: one key, one job, one charge.
        order = {"customer": "ada", "cents": 1200}
        charge = await p.enqueue("charge-card", order, key="order-1001")
        again = await p.enqueue("charge-card", order, key="order-1001")
        print(f"keyed:     {again.id} is {'the same job' if again.id == charge.id else 'another job'}")

        photos = await p.enqueue_many("resize-photo", [{"path": f"{n}.jpg"} for n in range(20)])
        print(f"many:      {len(photos)} photos in one call")

        try:  # a producer rarely waits: it has other things to do
            job = await welcome.wait(timeout=timedelta(seconds=5))
        except pulse.ResultTimeout:
            job = await p.get_job(welcome.id)
        print(f"looked up: {job.id} is {job.status}, attempts: {job.attempts}")
        if not job.attempts:
            print("No worker has taken it yet. Start one: python examples/worker.py")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except pulse.Unavailable as error:
        sys.exit(str(error))
