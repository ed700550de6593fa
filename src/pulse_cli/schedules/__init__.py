"""Schedules: commands, and views (rows and JSON) that they stand on."""
