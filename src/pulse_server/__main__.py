"""`python -m pulse_server` is `pulsed`."""

import sys

from pulse_server.command import main

if __name__ == "__main__":
    sys.exit(main())
