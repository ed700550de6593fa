"""Jobs: pages, actions and views."""
