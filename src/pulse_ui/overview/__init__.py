"""The overview, its charts, and dead letters. Pages stand on views, views on `charts.py`."""
