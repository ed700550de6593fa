"""Topics: their settings, limits, lanes and holds, and who takes their jobs."""
