"""Jobs: submitted, shown, watched and changed."""
