"""Topics: their settings, limits, lanes and holds, and which of them no worker takes.

It imports `dispatch` and the rooms below it. Start with `rules.py` (which value is in force), then
`service.py`.
"""
