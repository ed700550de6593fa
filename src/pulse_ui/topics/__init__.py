"""Topics: pages and views of their settings, limits and pauses. Pages call pulsed."""
