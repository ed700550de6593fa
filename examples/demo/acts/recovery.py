"""Act 4: a worker is killed in the middle of a job, and another one finishes it."""

from datetime import UTC, datetime

import pulse
from examples.demo.facts import NotAsPromised, first_line, until, was_orphaned
from examples.demo.narrator import Tone
from examples.demo.scene import Scene, name_of
from examples.demo.stage import LEASE_SECONDS

_VIDEO_SECONDS = 3
_KILL_AT_PERCENT = 40


async def play(scene: Scene) -> str:
    """Kill the worker that runs a job, and show how the job is recovered. Returns the worker."""
    await scene.begin(
        "4. A worker dies",
        f"A worker holds a job by a lease: a claim that ends after {LEASE_SECONDS} seconds here (usually 30) "
        "unless the worker extends it, as it does while it is alive.",
    )
    video = await scene.submit("make-video", {"seconds": _VIDEO_SECONDS})
    name = name_of("make-video", video)
    scene.narrator.show("app", f"submits {name}, which takes {_VIDEO_SECONDS} s")
    victim = (await scene.heard(video, _KILL_AT_PERCENT)).worker
    scene.stage.kill_worker(victim)
    killed_at = datetime.now(UTC)
    scene.narrator.show(victim, f"was killed (kill -9) while it ran {name}", Tone.BAD)
    await _show_lease(scene, video, victim)
    await _show_loss(scene, video, victim)
    job = await scene.finished(video)
    if not is_recovered(job, victim):
        raise NotAsPromised(f"{name} was not recovered: it is {job.status}, last run by {job.worker_id}.")
    assert job.finished_at is not None
    took = job.finished_at - killed_at
    scene.narrator.show(
        "server",
        f"{name} was recovered: {job.worker_id} finished it at attempt {job.attempts}, "
        f"{took.total_seconds():.1f} s after {victim} was killed",
        Tone.GOOD,
    )
    return victim


def is_recovered(job: pulse.JobInfo, victim: str) -> bool:
    """Whether the job lost its worker, and was completed by another one."""
    return job.status is pulse.JobStatus.COMPLETED and was_orphaned(job) and job.worker_id != victim


async def _show_lease(scene: Scene, job_id: str, victim: str) -> None:
    job = await scene.client.get_job(job_id)
    if job.status is not pulse.JobStatus.RUNNING or job.worker_id != victim or job.lease_until is None:
        raise NotAsPromised(f"{victim} was to die with its job, but that is {job.status} by {job.worker_id}.")
    left = job.lease_until - datetime.now(UTC)
    scene.narrator.show(
        "server",
        f"does not notice yet: {victim} has the lease on the job for {left.total_seconds():.1f} s more",
    )


async def _show_loss(scene: Scene, job_id: str, victim: str) -> None:
    async def look() -> pulse.JobInfo | None:
        job = await scene.client.get_job(job_id)
        return job if was_orphaned(job) else None

    job = await until(look, f"the lease of {victim} ends")
    scene.narrator.show(
        "server",
        f"received no heartbeat from {victim}, and the lease has expired: the job will be retried "
        f"(recorded as: {first_line(job.history[-1].error)})",
    )
