"""`python -m pulse_ui`."""

import sys

from pulse_ui.main import main

sys.exit(main())
