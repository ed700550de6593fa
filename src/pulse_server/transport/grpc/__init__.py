"""The gRPC port: thin handlers, interceptors, and the boundary that maps errors to statuses."""
