"""Workflows: pages, views and the layout of their drawing. Pages call pulsed; the layout is pure."""
