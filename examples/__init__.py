"""Programs to read and to copy: a worker, two producers, a slow job, and the demo."""
