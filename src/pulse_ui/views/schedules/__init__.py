"""Schedules as pages show them, and the form that makes one."""
