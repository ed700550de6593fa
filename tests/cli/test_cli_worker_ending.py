"""`pulse worker` ends when it was stopped, although a thread that a handler has started never does."""

import signal
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine

APPLICATION = """
import asyncio, threading, time
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


@pytest.mark.parametrize(
    ("client", "handler"),
    [
        ("pulse.Pulse", IN_THE_EXECUTOR),
        ("pulse.Pulse", IN_A_THREAD),
        ("pulse.SyncPulse", IN_A_THREAD),
    ],
)
def test_thread_that_a_handler_leaves_behind_does_not_keep_the_process(
    pulse: CommandLine, tmp_path: Path, topic: str, client: str, handler: str
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION.format(client=client, topic=topic, handler=handler.strip()))
    with pulse.process("worker", "shop:app", cwd=tmp_path) as process:
        try:
            assert pulse("submit", topic, "--wait").code == 0
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "does not end, so the process exits:" in errors
