"""The overview, its charts, and dead letters."""
