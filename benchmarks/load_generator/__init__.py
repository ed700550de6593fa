"""Load for a server that already runs: `dev.py bench --addr HOST:PORT`."""
