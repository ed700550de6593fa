"""Nouns that are only read: SQL, dataclass and cache in one module each, without a port."""
