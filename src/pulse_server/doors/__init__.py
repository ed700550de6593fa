"""The ports of the server: gRPC and HTTP, admission, callers, bounds of calls, lines, TLS."""
