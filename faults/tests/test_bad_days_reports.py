"""A report is committed, and its answer is lost on the way: the worker repeats it, and it counts once."""

from contextlib import AsyncExitStack

import pulse
from faults.proxy import proxy_to
from tests.eventually import eventually
from tests.server.http_caller import get
from tests.system.stage import Stage, free_port
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

ENDS = {"work": "COMPLETED", "discard": "DEAD_LETTERED"}
METRICS = {"work": "pulse_jobs_completed_total", "discard": "pulse_jobs_dead_lettered_total"}


async def test_report_whose_answer_is_lost_is_repeated_and_counts_once(
    stage: Stage, table: JobsTable
) -> None:
    """A success and a failure, each from a worker with a link of its own: no fault reaches the other."""
    http_address = f"127.0.0.1:{free_port()}"
    server = await stage.pulsed(PULSE_HTTP_ADDR=http_address)

    async def reports_answered(count: int) -> None:
        async def are_answered() -> bool:
            return await _metric(http_address, 'pulse_rpcs_total{method="ReportResults",code="OK"}') == count

        await eventually(are_answered, f"{count} reports are answered")

    async with AsyncExitStack() as open_links, pulse.Pulse(server.address) as p:
        links = {topic: await open_links.enter_async_context(proxy_to(server.address)) for topic in ENDS}
        workers = [stage.start_worker(link.address, topic) for topic, link in links.items()]
        await eventually(lambda: all(worker.is_connected for worker in workers), "both workers connect")
        for number, (topic, status) in enumerate(ENDS.items()):
            losing = links[topic].lose_answers(after=b"ReportResults")
            handle = await (p.enqueue(topic, Errand()) if topic == "work" else p.enqueue(topic))
            committed = await table.wait_until(handle.id, status=status)
            await reports_answered(2 * number + 1)
            losing.heal()  # the worker sees only that the connection is closed
            await reports_answered(2 * number + 2)
            assert await table.row(handle.id) == committed
            assert len(stage.executions(handle.id)) == 1
            assert await _metric(http_address, f'{METRICS[topic]}{{topic="{topic}"}}') == 1
    assert not any("refused" in worker.log for worker in workers)


async def _metric(http_address: str, series: str) -> float:
    lines = (await get(http_address, "/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{series} "))
