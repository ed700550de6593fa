"""Dispatch: which worker gets which job. It holds the connected workers, and claims for them.

Only `rpcs.py` knows gRPC. The room imports `wakeups`, `jobs`, `doors`, `database` and `base`. Start with the
concepts in docs/architecture.md, then `hub.py`; `publisher.py` is what every transition passes after its
commit.
"""
