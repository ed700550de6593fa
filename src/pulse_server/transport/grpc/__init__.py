"""gRPC: thin handlers, the hub that feeds the workers' streams, and the one boundary where errors turn into
statuses."""
