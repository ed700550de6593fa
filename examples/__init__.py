"""Programs to read and to copy: a worker, two producers, a slow job, schedules, a pause, and the demo."""
