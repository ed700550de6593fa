"""Loops with statements of their own, without a port: retention, lease checks, arrivals."""
