"""`pulse` whose supervisor waits a second after a second signal: `python -m tests.cli.hasty_pulse`.

With its own bound it kills a process that does not stop after fifteen.
"""

from pulse.supervision import supervisor
from pulse_cli.main import main

if __name__ == "__main__":
    supervisor.HURRY_GRACE_SECONDS = 1.0
    main()
