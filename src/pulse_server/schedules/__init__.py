"""Schedules: timetables, and the scheduler that fires them. Their fires are ordinary jobs.

It imports `work`, `topics`, `dispatch` and the rooms below them. Start with `rules.py`, then `Scheduler` in
`service.py`.
"""
