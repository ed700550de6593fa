"""Programs inside the peers' environments: only the standard library and the peer are there."""
