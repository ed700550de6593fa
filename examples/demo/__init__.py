"""The demo: a server, a dashboard, workers, and a narration of what really happened. See `__main__`."""
