"""The outbox: jobs that an application stores in its own Postgres, and the relay that submits them.

`database.py` alone imports a driver. Start with `relay.py`.
"""
