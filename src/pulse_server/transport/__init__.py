"""How the outside world reaches the services."""
