"""The async client: `Pulse`, its verbs, and how they send what they are given."""
