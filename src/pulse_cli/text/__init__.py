"""Values as people write and read them. Pure: nothing of click, rich or the SDK."""
