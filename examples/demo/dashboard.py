"""The dashboard of the demo: `python -m examples.demo.dashboard ADDRESS`, where ADDRESS is pulsed's.

It takes the usual port if that is free, else any. Standard input is a pipe that only the demo holds: when it
closes the demo is gone, and so is this process.
"""

import socket
import sys
import threading

from examples.demo.worker import end_with_the_demo
from pulse_ui.main import main
from pulse_ui.settings import DEFAULT_ADDRESS


def free_address() -> str:
    """Return where to listen, on this machine only."""
    host, _, port = DEFAULT_ADDRESS.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return f"{host}:0"
    return DEFAULT_ADDRESS


if __name__ == "__main__":
    threading.Thread(target=end_with_the_demo, daemon=True).start()
    sys.exit(main(["--addr", free_address(), "--server", sys.argv[1]]))
