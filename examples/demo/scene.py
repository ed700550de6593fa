"""What every act works with: the client that submits jobs and looks at them, the processes, the narrator."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Unpack

import pulse
from examples.demo.facts import read_jobs, until
from examples.demo.narrator import Narrator
from examples.demo.stage import Progress, Stage
from pulse.jobs.submissions import EnqueueOptions


class Scene:
    """Submits jobs, counts them, and waits for what becomes of them."""

    def __init__(self, client: pulse.Pulse, stage: Stage, narrator: Narrator, pause: timedelta) -> None:
        self.client = client
        self.stage = stage
        self.narrator = narrator
        self.submitted: set[str] = set()
        self._pause = pause

    async def begin(self, title: str, explanation: str) -> None:
        """Announce an act, and leave the time to read about it."""
        self.narrator.title(title, explanation)
        await asyncio.sleep(self._pause.total_seconds())

    async def submit(self, topic: str, args: Mapping[str, object], **options: Unpack[EnqueueOptions]) -> str:
        """Submit a job. Returns its id."""
        handle = await self.client.enqueue(topic, args, **options)
        self.submitted.add(handle.id)
        return handle.id

    async def submit_many(self, topic: str, items: Collection[Mapping[str, object]]) -> set[str]:
        """Submit a job for each item. Returns their ids."""
        ids = {handle.id for handle in await self.client.enqueue_many(topic, items)}
        self.submitted |= ids
        return ids

    async def completed(self, ids: Collection[str], topic: str) -> list[pulse.JobInfo]:
        """Wait until all these jobs are completed, and return them."""

        async def look() -> list[pulse.JobInfo] | None:
            jobs = await read_jobs(self.client, ids, topic)
            is_over = len(jobs) == len(ids) and all(job.status is pulse.JobStatus.COMPLETED for job in jobs)
            return jobs if is_over else None

        return await until(look, f"{len(ids)} {topic} jobs are completed")

    async def finished(self, job_id: str) -> pulse.JobInfo:
        """Wait until nothing happens to the job any more, and return it."""

        async def look() -> pulse.JobInfo | None:
            job = await self.client.get_job(job_id)
            return job if job.status.is_finished else None

        return await until(look, f"job {job_id} is finished")

    async def connected(self, worker: str) -> pulse.WorkerInfo:
        """Wait until a worker of this name is connected to the server, and return it."""

        async def look() -> pulse.WorkerInfo | None:
            found = (one for one in await self.client.workers() if one.worker_id == worker)
            return next((one for one in found if one.connected_at is not None), None)

        return await until(look, f"{worker} is connected")

    async def heard(self, job_id: str, percent: int) -> Progress:
        """Wait until a worker reports this progress of the job, and return the report."""

        async def look() -> Progress | None:
            progress = self.stage.progress.get(job_id)
            return progress if progress is not None and progress.percent >= percent else None

        return await until(look, f"a worker is {percent} % through job {job_id}")


def name_of(topic: str, job_id: str) -> str:
    """Return a name by which a reader can follow the job; the end of an id is its random part."""
    return f"{topic} …{job_id[-4:]}"
