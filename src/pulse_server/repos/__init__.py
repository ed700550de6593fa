"""Ports to the store and the wake-up line. Protocols only."""
