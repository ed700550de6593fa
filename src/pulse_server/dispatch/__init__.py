"""Dispatch: which worker gets which job. Holds the connected workers and claims for them; imports no gRPC."""
