"""Schedules: pages, forms and views. Pages call pulsed; views compute from the answers."""
