"""Jobs: submitted, shown, watched and changed.

In this order: `commands`, `actions`, `bulk` and `loops`, `views` (rows and JSON).
"""
