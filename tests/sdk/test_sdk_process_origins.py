"""How a fresh process finds the handlers with process=True, and what is said when it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.sdk.fake_pulsed import FakePulsed

HEAD = """
    import asyncio, os
    import pulse

    def work() -> None: ...
"""


def start(directory: Path, source: str, fake: FakePulsed, *command: str) -> subprocess.Popen[str]:
    script = directory / "app.py"
    script.write_text(textwrap.dedent(HEAD + source))
    return subprocess.Popen(
        [sys.executable, *(command or [str(script)])],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PULSE_ADDR": fake.address,
        },
    )


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            """
    p = pulse.Pulse()
    p.register("work", work, process=True)
    asyncio.run(p.run())
            """,
            'Put that behind `if __name__ == "__main__":`',
        ),
        (
            """
    def main() -> None:
        p = pulse.Pulse()
        p.register("work", work, process=True)
        asyncio.run(p.run())

    if __name__ == "__main__":
        main()
            """,
            "make it a global name of a module",
        ),
        (
            """
    p = pulse.Pulse()
    p.register("found", work, process=True)

    if __name__ == "__main__":
        p.register("work", lambda: None, process=True)
        asyncio.run(p.run())
            """,
            "The handlers with process=True for work are not found in a fresh process",
        ),
        (
            """
    p = pulse.Pulse()
    p.register("work", work, process=True)

    if __name__ == "__main__":
        asyncio.run(p.run())
    else:
        import a_module_that_is_missing
            """,
            "No module named 'a_module_that_is_missing'",
        ),
    ],
)
def test_worker_says_at_its_start_why_a_process_cannot_find_its_handlers(
    fake: FakePulsed, tmp_path: Path, source: str, sentence: str
) -> None:
    worker = start(tmp_path, source, fake)
    _, complaints = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert sentence in complaints.splitlines()[-1]
    assert fake.opened == []


@pytest.mark.parametrize("command", [(), ("-m", "app"), ("-c", "import app; app.p.run()")])
def test_handler_is_found_however_the_program_was_started(
    fake: FakePulsed, tmp_path: Path, command: tuple[str, ...]
) -> None:
    worker = start(
        tmp_path,
        """
    p = pulse.SyncPulse()
    p.register("work", lambda: None, process=True)

    if __name__ == "__main__":
        p.run()
        """,
        fake,
        *command,
    )
    fake.deliver("j1")
    fake.until(lambda: "j1" in fake.results)
    worker.send_signal(signal.SIGTERM)
    assert worker.communicate(timeout=30) == ("", "")
    assert (worker.returncode, fake.results["j1"].success) == (0, True)


def test_handler_of_a_script_that_uses_multiprocessing_is_found(fake: FakePulsed, tmp_path: Path) -> None:
    """multiprocessing has the script under a second name, by which a fresh process cannot import it."""
    worker = start(
        tmp_path,
        """
    import multiprocessing

    p = pulse.SyncPulse()
    p.register("work", lambda: None, process=True)

    if __name__ == "__main__":
        p.run()
        """,
        fake,
    )
    fake.deliver("j1")
    fake.until(lambda: "j1" in fake.results)
    worker.send_signal(signal.SIGTERM)
    assert worker.communicate(timeout=30) == ("", "")
    assert fake.results["j1"].success


MIXED = """
    import time

    p = pulse.Pulse()
    p.register("in-process", work, process=True)
    p.register("plain", work)

    if __name__ == "__main__":
        asyncio.run(p.run())
    else:
        while not os.path.exists("go"):
            time.sleep(0.01)
"""


def test_plain_handlers_do_not_wait_for_a_process_to_import_the_application(
    fake: FakePulsed, tmp_path: Path
) -> None:
    worker = start(tmp_path, MIXED, fake)
    fake.deliver("j1", topic="in-process")
    fake.deliver("j2", topic="plain")
    fake.until(lambda: "j2" in fake.results)
    assert "j1" not in fake.results
    (tmp_path / "go").touch()
    fake.until(lambda: "j1" in fake.results)
    worker.send_signal(signal.SIGTERM)
    assert worker.communicate(timeout=30) == ("", "")
    assert fake.results["j1"].success


def test_job_whose_process_cannot_start_is_released_and_the_worker_ends(
    fake: FakePulsed, tmp_path: Path
) -> None:
    worker = start(tmp_path, f"{MIXED}\n        import a_module_that_is_missing\n", fake)
    fake.deliver("j1", topic="in-process")
    fake.deliver("j2", topic="plain")
    fake.until(lambda: "j2" in fake.results)
    (tmp_path / "go").touch()
    _, complaints = worker.communicate(timeout=30)
    assert "No module named 'a_module_that_is_missing'" in complaints.splitlines()[-1]
    assert (worker.returncode, fake.released, list(fake.results)) == (1, ["j1"], ["j2"])
