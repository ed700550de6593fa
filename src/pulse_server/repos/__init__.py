"""Ports: what the services ask of a store and of its wake-up line. Protocols only."""
