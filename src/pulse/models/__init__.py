"""The results of the verbs: frozen dataclasses, and how they are read from messages."""
