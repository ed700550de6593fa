"""Messages between servers, and the clients that follow jobs over all servers.

Messages may be lost: polling finds the same work. It imports `jobs`, `database` and `base`. Start with
`watchers.py`, then `line.py`, which sends them by NOTIFY.
"""
