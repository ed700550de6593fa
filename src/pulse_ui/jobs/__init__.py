"""Jobs: pages, actions and views. `pages.py` and `actions.py` call pulsed; views compute from the answers."""
