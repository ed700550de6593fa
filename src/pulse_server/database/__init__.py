"""Connections, statements, the schema and the audit.

`migrations/` has the tables, `functions/` and `interface/` the functions, `fragments/` the parts of SQL that
statements share. It imports `base` alone. Only this room and the modules with statements import the driver.
Start with `statements.py` for the columns of a job, or with `connections.py` for how a statement is sent.
"""
