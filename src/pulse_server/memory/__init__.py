"""A store in memory behind the ports, for tests of applications and of services."""
