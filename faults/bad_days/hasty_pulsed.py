"""pulsed with short timeouts for its database: `python -m faults.bad_days.hasty_pulsed`.

With its own bounds a call that waits for a lock is answered after five seconds, and a list after fifteen.
"""

import sys
from datetime import timedelta

from pulse_server.base import tuning
from pulse_server.database import connections
from pulse_server.main import main

if __name__ == "__main__":
    tuning.STATEMENT_TIMEOUT = connections.READ_TIMEOUT = timedelta(seconds=1)
    sys.exit(main())
