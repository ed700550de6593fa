"""Work that takes several calls, until it is done or interrupted with Ctrl-C."""
