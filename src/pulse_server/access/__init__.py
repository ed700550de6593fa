"""Who gets in: users, their passwords and roles. Knows nothing of gRPC or HTTP; both doors ask it."""
