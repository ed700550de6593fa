"""A producer without asyncio: how a Flask or Django view, or a script, enqueues jobs.

    pulsed                           # terminal 1: the server
    python examples/worker.py        # terminal 2: runs the jobs
    python examples/sync_producer.py # terminal 3: this

Set PULSE_ADDR=host:port if the server is not at localhost:50051.
"""

import sys
from datetime import timedelta

import pulse

# One client for the whole application, shared by its threads. It connects at the first call, so this may
# stand in a module that gunicorn loads before it forks.
p = pulse.SyncPulse(timeout=timedelta(seconds=3))


def sign_up(address: str) -> str:
    """What a view would do: answer the visitor at once, and leave the slow part to a worker."""
    job = p.enqueue("send-email", {"to": address, "subject": "Welcome"}, metadata={"source": "sign-up"})
    return job.id


def main() -> None:
    for address in ("ada@example.com", "bob@example.com"):
        print(f"{address} has signed up; the e-mail is job {sign_up(address)}")

    newsletter = [{"to": f"reader{n}@example.com", "subject": "News"} for n in range(10)]
    p.enqueue_many("send-email", newsletter, priority=-10)
    print(f"{len(newsletter)} newsletters wait behind everything else")

    for job in p.list_jobs(topic="send-email", limit=3):
        print(f"job {job.id} is {job.status}, priority {job.priority}")


if __name__ == "__main__":
    try:
        with p:
            main()
    except pulse.Unavailable as error:
        sys.exit(str(error))
