"""The dashboard of the demo: `python -m examples.demo.dashboard ADDRESS`, where ADDRESS is pulsed's.

It takes the usual port if that is free, else any. Standard input is a pipe that only the demo holds: when it
closes the demo is gone, and so is this process.
"""

import sys
import threading

from examples.demo.worker import end_with_the_demo
from pulse_ui.main import main
from pulse_ui.settings import DEFAULT_ADDRESS

ANY_PORT = f"{DEFAULT_ADDRESS.rpartition(':')[0]}:0"


def serve(server: str) -> int:
    """Serve until the end, at whichever address can be had, on this machine only. Returns the exit code."""
    # Tried, not looked at before: two demos that start together would both find it free.
    for address in (DEFAULT_ADDRESS, ANY_PORT):
        code = main(["--addr", address, "--server", server])
        if code == 0:
            break
    return code


if __name__ == "__main__":
    threading.Thread(target=end_with_the_demo, daemon=True).start()
    sys.exit(serve(sys.argv[1]))
