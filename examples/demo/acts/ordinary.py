"""Act 1: jobs are submitted, and done."""

from examples.demo.narrator import Tone
from examples.demo.scene import Scene

_EMAILS = 20


async def play(scene: Scene) -> None:
    """Submit some jobs, and show which worker ran them."""
    await scene.begin(
        "1. Jobs are done",
        "The server stores each job, sends it to one of the workers, and records when it is done.",
    )
    emails = [{"to": f"reader{number}@example.com", "subject": "News"} for number in range(_EMAILS)]
    ids = await scene.submit_many("send-email", emails)
    scene.narrator.show("app", f"submits {_EMAILS} jobs: send-email")
    jobs = await scene.completed(ids, "send-email")
    shares = {worker: sum(job.worker_id == worker for job in jobs) for worker in ("worker A", "worker B")}
    scene.narrator.show(
        "server",
        f"all {len(jobs)} are done: {' and '.join(f'{count} by {who}' for who, count in shares.items())}",
        Tone.GOOD,
    )
