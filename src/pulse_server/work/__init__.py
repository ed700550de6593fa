"""What happens to jobs: submit, report, extend, reap, promote, cancel, retry, undo, wait and forget.

Services, loops and RPCs over the store of `jobs`. It imports `steps`, `topics`, `dispatch` and the rooms
below them. Start with `submissions.py` and `attempts.py`.
"""
