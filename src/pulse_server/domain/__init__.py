"""What a job is and which rules it obeys. Pure: no I/O, no clock of its own."""
