"""Act 2: one job fails and succeeds later, another fails until it is given up."""

import asyncio

import pulse
from examples.demo.facts import NotAsPromised, first_line, until
from examples.demo.narrator import Tone
from examples.demo.scene import Scene, name_of

_FILE_ATTEMPTS = 3


async def play(scene: Scene) -> asyncio.Task[None]:
    """Tell how a job fails and then succeeds. Returns the tale of the other one, which takes longer."""
    await scene.begin(
        "2. Jobs fail",
        "A job that fails is tried again after a wait, which grows each time. When its attempts are used up "
        "it goes to the dead letters: it is kept there, with its error, until a person decides what to do.",
    )
    charge = await scene.submit("charge-card", {"customer": "ada", "cents": 1200})
    scene.narrator.tell("app", f"submits {name_of('charge-card', charge)}, while the bank is out of order")
    broken = await scene.submit("import-file", {"path": "sales.csv"}, max_attempts=_FILE_ATTEMPTS)
    scene.narrator.tell(
        "app", f"submits {name_of('import-file', broken)}, with a broken file and {_FILE_ATTEMPTS} attempts"
    )
    giving_up = asyncio.create_task(_tell_giving_up(scene, broken))
    try:
        await _tell_success(scene, charge)
    except BaseException:
        await end(giving_up)
        raise
    return giving_up


async def end(tale: "asyncio.Task[None]") -> None:
    """Stop telling. What went wrong with this one as well needs no second mention."""
    tale.cancel()
    await asyncio.gather(tale, return_exceptions=True)


async def _tell_success(scene: Scene, charge: str) -> None:
    job = await _tell_failures(scene, charge)
    if job.status is not pulse.JobStatus.COMPLETED:
        raise NotAsPromised(f"{name_of(job.topic, job.id)} was to succeed in the end, but is {job.status}.")
    done = f"{name_of(job.topic, job.id)} is done, at attempt {job.attempts}"
    scene.narrator.tell("server", done, Tone.GOOD)


async def _tell_giving_up(scene: Scene, broken: str) -> None:
    job = await _tell_failures(scene, broken)
    if job.status is not pulse.JobStatus.DEAD_LETTERED:
        raise NotAsPromised(f"{name_of(job.topic, job.id)} was to be given up, but is {job.status}.")
    scene.narrator.tell(
        "server",
        f"{name_of(job.topic, job.id)} failed at its last attempt and goes to the dead letters, "
        f"with its error: {first_line(job.last_error)}",
        Tone.BAD,
    )


async def _tell_failures(scene: Scene, job_id: str) -> pulse.JobInfo:
    """Tell each failure that is tried again, as it enters the job's history. Returns the finished job."""
    told = 0

    async def look() -> pulse.JobInfo | None:
        nonlocal told
        job = await scene.client.get_job(job_id)
        for failure in job.history[told:]:
            if failure.attempt < job.max_attempts:
                scene.narrator.tell("server", _sentence(job, failure))
        told = len(job.history)
        return job if job.status.is_finished else None

    return await until(look, f"job {job_id} is finished")


def _sentence(job: pulse.JobInfo, failure: pulse.Attempt) -> str:
    name = name_of(job.topic, job.id)
    words = f"{name} failed on {failure.worker_id} ({first_line(failure.error)}); "
    if failure.attempt > 1:
        words = f"{name} failed again on {failure.worker_id}; "
    # The time of the next attempt is known of the last failure only, and only until that attempt begins.
    if job.next_run_at is None or failure.ended_at is None or failure is not job.history[-1]:
        return f"{words}it is tried again"
    wait = job.next_run_at - failure.ended_at
    return f"{words}it is tried again in {wait.total_seconds():.0f} s"
