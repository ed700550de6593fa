"""The worker behind `run()`: it receives, holds, runs and reports jobs."""
