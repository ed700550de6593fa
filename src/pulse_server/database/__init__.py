"""Connections, statements, the schema and the audit.

`migrations/` has the tables, `interface/` the functions that applications call, `fragments/` the parts of SQL
that statements share; other functions and parts are in the room of their noun. It imports `base` alone. Only
this room and the modules with statements import the driver. Start with `statements.py` for the columns of a
job, or with `connections.py` for how a statement is sent.
"""
