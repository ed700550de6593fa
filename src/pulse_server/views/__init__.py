"""What is only read: statement, dataclass and cache of a noun in one module, without a service.

It imports any room below; only `app` and `server` import it. Start with `rpcs.py`, which names the module of
each RPC.
"""
