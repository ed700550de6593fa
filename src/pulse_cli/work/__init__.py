"""`pulse worker`: finds an application, runs its handlers, restarts it when a file changes."""
