"""The user's functions: their signatures, how they are called, and their context.

It imports `jobs`, `wire` and what is below, and no worker. Start with `handler.py`, then `registry.py`.
"""
