"""The application layer: one small file per verb or loop, over the store."""
