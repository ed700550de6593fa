"""Imported before grpc: keeps the core of grpc from writing to standard error.

It would print a line for every failed handshake, many per second. The SDK logs the failure once. A
GRPC_VERBOSITY that is set takes precedence.
"""

import os

# grpc reads it once, when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
