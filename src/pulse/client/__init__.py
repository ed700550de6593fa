"""The async client: `Pulse`, its verbs in one module per noun, and how they send their requests."""
