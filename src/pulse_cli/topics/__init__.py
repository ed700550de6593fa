"""Topics: their counts, settings, limits, lanes and pauses."""
