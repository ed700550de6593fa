"""What `run()` does: jobs are taken, held, run, and reported."""
