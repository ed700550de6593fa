"""The worker behind `run()`: it receives, holds, runs and reports jobs.

It imports `handlers` and what is below, and no client. Start with `worker.py`, then `intake.py`.
"""
