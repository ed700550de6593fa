"""Times and numbers as a terminal shows them. Pure: nothing of click, rich or the SDK."""
