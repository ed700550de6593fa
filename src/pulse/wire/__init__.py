"""Connections to pulsed: addresses, TLS, calls, streams, and gRPC failures as errors.

It knows no job: it imports errors, intervals and the stubs. Start with `connection.py`.
"""
