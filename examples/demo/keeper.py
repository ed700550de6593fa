"""Runs pulsed for as long as the demo lives, then stops it and removes its directory.

Run as `python -m examples.demo.keeper DIRECTORY keep|remove`. Standard input is a pipe that only the demo
holds: it closes when the demo is done, and also when the demo is killed, so both end in the same way.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

# pulsed stops its streams, its calls and its Postgres within this, or is killed.
_STOP_SECONDS = 15
# A Postgres whose pulsed was killed may write a last file while the directory is being removed.
_REMOVE_SECONDS = 5


def main(directory: Path, *, remove: bool) -> int:
    """Run pulsed until standard input closes. Returns the exit code of pulsed."""
    # A shell that runs the demo in the background ignores SIGINT for us, and pulsed would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (directory / "pulsed.log").open("ab") as log:
        pulsed = subprocess.Popen(
            [sys.executable, "-m", "pulse_server.main"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    threading.Thread(target=_stop_at_end_of_input, args=(pulsed,), daemon=True).start()
    code = pulsed.wait()
    last_words = _last_words(directory / "pulsed.log")
    if remove:
        _remove(directory)
    with contextlib.suppress(BrokenPipeError):  # a demo that was killed does not listen any more
        print(last_words, flush=True)
    return code


def _stop_at_end_of_input(pulsed: "subprocess.Popen[bytes]") -> None:
    os.read(0, 1)  # not through sys.stdin, whose lock would be held when the interpreter exits
    # Not SIGTERM: SIGINT also ends a pulsed in order that is still making its database.
    pulsed.send_signal(signal.SIGINT)
    try:
        pulsed.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        pulsed.kill()


def _last_words(log: Path) -> str:
    """Return the message of pulsed for the terminal, which follows its JSON lines."""
    return "\n".join(line for line in log.read_text().splitlines() if not line.startswith("{"))


def _remove(directory: Path) -> None:
    deadline = time.monotonic() + _REMOVE_SECONDS
    while directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), remove=sys.argv[2] == "remove"))
