"""Act 3: an urgent job overtakes others, and a delayed one waits for its time."""

from datetime import timedelta

from examples.demo.facts import NotAsPromised
from examples.demo.narrator import Tone
from examples.demo.scene import Scene, name_of

_PHOTOS = 40
_DELAY = timedelta(seconds=3)


async def play(scene: Scene) -> None:
    """Submit a queue of jobs, then an urgent one; and before them one for later."""
    await scene.begin(
        "3. Jobs wait for their turn",
        "The oldest job runs first, but an urgent one overtakes it, and a delayed one waits.",
    )
    reminder = await scene.submit(
        "send-email", {"to": "ada@example.com", "subject": "Reminder"}, delay=_DELAY
    )
    scene.narrator.show(
        "app", f"submits {name_of('send-email', reminder)}, to be run in {_DELAY.total_seconds():.0f} s"
    )
    queue = await scene.submit_many("resize-photo", [{"path": f"{number}.jpg"} for number in range(_PHOTOS)])
    urgent = await scene.submit("resize-photo", {"path": "urgent.jpg"}, priority=10)
    scene.narrator.show("app", f"submits {_PHOTOS} jobs: resize-photo, and after them an urgent one")
    await _show_overtaking(scene, queue, urgent)
    (job,) = await scene.completed([reminder], "send-email")
    assert job.started_at is not None
    assert job.submitted_at is not None
    waited = job.started_at - job.submitted_at
    scene.narrator.show(
        "server",
        f"{name_of(job.topic, job.id)} began {waited.total_seconds():.1f} s after it was submitted",
        Tone.GOOD,
    )


async def _show_overtaking(scene: Scene, queue: set[str], urgent: str) -> None:
    jobs = await scene.completed({*queue, urgent}, "resize-photo")
    began = {job.id: job.started_at.timestamp() for job in jobs if job.started_at is not None}
    overtaken = sum(began[job_id] > began[urgent] for job_id in queue)
    if not overtaken:
        raise NotAsPromised("The urgent job was to overtake others, but it was the last to begin.")
    scene.narrator.show(
        "server",
        f"the urgent one was submitted last, and yet began before {overtaken} of the {_PHOTOS}",
        Tone.GOOD,
    )
