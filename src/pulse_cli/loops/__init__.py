"""What goes on over several calls, until it is done or somebody presses Ctrl-C."""
