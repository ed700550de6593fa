"""Authentication: users, their passwords and roles, and the throttle of failed logins.

It imports `base` alone, and neither gRPC nor HTTP, which both use it. Start with `service.py`.
"""
