"""Steps and signals of jobs. ADR-0069

It imports `dispatch` and rooms below it. Start with `rules.py`, then `transitions.sql`.
"""
