"""Jobs: the row, its transitions and its messages. One guarded statement for each transition.

What is done with jobs is in `work` and `dispatch`; this room imports `doors`, `database` and `base`. Start
with `rules.py`, then `transitions/jobs.sql` and `store.py`.
"""
