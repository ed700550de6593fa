"""Authentication: users, their passwords and roles. Independent of gRPC and HTTP, which both use it."""
