"""Schedules: rules, store, service and RPCs."""
