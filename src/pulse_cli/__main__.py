"""`python -m pulse_cli` is `pulse`."""

from pulse_cli.main import main

main()
