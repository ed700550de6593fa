"""Workflows as pages show them."""
