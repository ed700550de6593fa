"""pulsed: the server that owns the database and speaks gRPC to producers, workers and operators.

A room is a folder named by a noun; `pyproject.toml` has their order, docs/architecture.md a sentence for
each. Start with `app.py`, which makes every part, or with the `rpcs.py` of a noun.
"""
