"""Jobs, schedules and their rules. Pure: no I/O, no clock."""
