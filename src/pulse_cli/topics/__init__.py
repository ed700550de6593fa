"""Topics: their counts, settings, limits, lanes and pauses. Commands stand on views."""
