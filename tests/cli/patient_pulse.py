"""`pulse` that waits for the names that it completes: `python -m tests.cli.patient_pulse`.

With its own bound, a busy server that does not answer at once completes nothing.
"""

from datetime import timedelta

from pulse_cli import tuning
from pulse_cli.main import main

if __name__ == "__main__":
    tuning.COMPLETION_TIMEOUT = timedelta(seconds=30)
    main()
