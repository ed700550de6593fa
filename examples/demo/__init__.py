"""The demo: a server, a dashboard, workers and a story told from what really happened. See `__main__`."""
