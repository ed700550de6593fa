"""The user's functions: their signatures, how they are called, and their context."""
