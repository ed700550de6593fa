"""Schedules: pages, forms and views."""
