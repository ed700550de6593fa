"""The ports of the server: gRPC and HTTP."""
