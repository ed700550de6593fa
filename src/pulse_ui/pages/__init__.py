"""The pages: calls to pulsed, then a view in a template."""
