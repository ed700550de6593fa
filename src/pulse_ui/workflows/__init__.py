"""Workflows: pages, views and the layout of their drawing."""
