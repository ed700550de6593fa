"""The overview, the workers and the dead letters as pages show them."""
