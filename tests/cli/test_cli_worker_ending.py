"""`pulse worker` ends when it was stopped, although what a handler has started never does."""

import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests.cli.command_line import CommandLine

APPLICATION = """
import asyncio, concurrent.futures, threading, time
from datetime import timedelta
import pulse

app = {client}()

@app.job("{topic}")
{handler}
"""

IN_THE_EXECUTOR = """
async def handle():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
"""

IN_A_THREAD = """
def handle():
    threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()
"""

IN_A_POOL = """
def handle():
    concurrent.futures.ProcessPoolExecutor(1).submit(time.sleep, 3600)
"""

STUBBORN = """
async def handle():
    await asyncio.to_thread(time.sleep, 0)  # its thread is idle from now on
    app.staying = asyncio.create_task(stay(), name="stubborn")

async def stay():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""


ENDINGS = {
    "task": ("pulse.Pulse", STUBBORN),
    "executor": ("pulse.Pulse", IN_THE_EXECUTOR),
    "thread": ("pulse.Pulse", IN_A_THREAD),
    # Its process has standard output too, so that the end below is the end of both.
    "pool": ("pulse.Pulse", IN_A_POOL),
    "thread of a blocking application": ("pulse.SyncPulse", IN_A_THREAD),
}


def test_what_a_handler_leaves_behind_does_not_keep_the_process(
    pulse: CommandLine, tmp_path: Path, topic: str
) -> None:
    """Several workers at once, because each waits five seconds."""
    with ExitStack() as stack:
        workers: dict[str, subprocess.Popen[str]] = {}
        for number, (name, (client, handler)) in enumerate(ENDINGS.items()):
            directory = tmp_path / str(number)
            directory.mkdir()
            (directory / "shop.py").write_text(
                APPLICATION.format(client=client, topic=f"{topic}-{number}", handler=handler.strip())
            )
            workers[name] = stack.enter_context(pulse.process("worker", "shop:app", cwd=directory))
            stack.callback(workers[name].kill)
        for number, (name, process) in enumerate(workers.items()):
            assert pulse("submit", f"{topic}-{number}", "--wait").code == 0, name
            process.send_signal(signal.SIGTERM)
        for name, process in workers.items():
            _, errors = process.communicate(timeout=30)
            assert process.returncode == 0, name
            assert ("Task stubborn does not end, so the process exits:" in errors) == (name == "task")
            assert ("does not end, so it is killed." in errors) == (name == "pool")
            assert ("Thread " in errors) == ("thread" in name or name == "executor")
