"""Imported before grpc is: keeps grpc's core from writing to standard error, where the SDK's own words go.

It prints a line for every handshake that fails, many a second. The SDK logs that once, in words. Whoever sets
GRPC_VERBOSITY is not overruled.
"""

import os

# Read once, when grpc is first imported; later it changes nothing.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
