"""The demo: a server, two workers and a story that is told from what really happened. See `__main__`."""
