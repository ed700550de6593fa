"""How long tests wait for a fact before they fail."""

PATIENCE_SECONDS = 50.0
