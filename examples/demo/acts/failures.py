"""Act 2: one job fails and succeeds later, another fails until it is given up."""

import asyncio

import pulse
from examples.demo.facts import NotAsPromised, first_line, until
from examples.demo.narrator import Tone
from examples.demo.scene import Scene, name_of

_FILE_ATTEMPTS = 3


async def play(scene: Scene) -> asyncio.Task[None]:
    """Show how a job fails and then succeeds. Returns the task that shows the other one."""
    await scene.begin(
        "2. Jobs fail",
        "A job that fails is retried after a wait, which grows each time. When its attempts are used up "
        "it becomes a dead letter: it is kept, with its error, until an operator decides what to do.",
    )
    charge = await scene.submit("charge-card", {"customer": "ada", "cents": 1200})
    scene.narrator.show("app", f"submits {name_of('charge-card', charge)}, while the bank is out of order")
    broken = await scene.submit("import-file", {"path": "sales.csv"}, max_attempts=_FILE_ATTEMPTS)
    scene.narrator.show(
        "app", f"submits {name_of('import-file', broken)}, with a broken file and {_FILE_ATTEMPTS} attempts"
    )
    giving_up = asyncio.create_task(_show_giving_up(scene, broken))
    try:
        await _show_success(scene, charge)
    except BaseException:
        await end(giving_up)
        raise
    return giving_up


async def end(task: "asyncio.Task[None]") -> None:
    """Stop the task. An error of its own needs no second mention."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _show_success(scene: Scene, charge: str) -> None:
    job = await _show_failures(scene, charge)
    if job.status is not pulse.JobStatus.COMPLETED:
        raise NotAsPromised(f"{name_of(job.topic, job.id)} was to succeed in the end, but is {job.status}.")
    done = f"{name_of(job.topic, job.id)} is done, at attempt {job.attempts}"
    scene.narrator.show("server", done, Tone.GOOD)


async def _show_giving_up(scene: Scene, broken: str) -> None:
    job = await _show_failures(scene, broken)
    if job.status is not pulse.JobStatus.DEAD_LETTERED:
        raise NotAsPromised(f"{name_of(job.topic, job.id)} was to be given up, but is {job.status}.")
    scene.narrator.show(
        "server",
        f"{name_of(job.topic, job.id)} failed at its last attempt and goes to the dead letters, "
        f"with its error: {first_line(job.last_error)}",
        Tone.BAD,
    )


async def _show_failures(scene: Scene, job_id: str) -> pulse.JobInfo:
    """Show each failure that is retried, as it enters the job's history. Returns the finished job."""
    shown = 0

    async def look() -> pulse.JobInfo | None:
        nonlocal shown
        job = await scene.client.get_job(job_id)
        for failure in job.history[shown:]:
            if failure.attempt < job.max_attempts:
                scene.narrator.show("server", _sentence(job, failure))
        shown = len(job.history)
        return job if job.status.is_finished else None

    return await until(look, f"job {job_id} is finished")


def _sentence(job: pulse.JobInfo, failure: pulse.Attempt) -> str:
    name = name_of(job.topic, job.id)
    words = f"{name} failed on {failure.worker_id} ({first_line(failure.error)}); "
    if failure.attempt > 1:
        words = f"{name} failed again on {failure.worker_id}; "
    # The time of the next attempt is known of the last failure only, and only until that attempt begins.
    if job.next_run_at is None or failure.ended_at is None or failure is not job.history[-1]:
        return f"{words}it is retried"
    wait = job.next_run_at - failure.ended_at
    return f"{words}it is retried in {wait.total_seconds():.0f} s"
