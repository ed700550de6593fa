"""Schedules: commands and views."""
