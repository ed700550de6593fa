"""The user's functions: what they are called with, and what they can know about their job."""
