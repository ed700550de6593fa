"""How long tests wait for a fact before they fail."""

PATIENCE_SECONDS = 20.0
