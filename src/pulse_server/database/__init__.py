"""Connections, statements, the schema and the audit. Only this room and the stores import the driver."""
