"""What is only read: SQL, dataclass and cache of a noun in one module, without a service."""
