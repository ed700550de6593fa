"""Connections to pulsed: addresses, TLS, calls, streams, and gRPC failures as errors."""
