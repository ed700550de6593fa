"""A module of the project that cannot be imported."""

raise RuntimeError("a setting is missing")
