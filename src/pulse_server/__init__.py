"""pulsed: the server that owns the database and speaks gRPC to producers, workers and operators."""
