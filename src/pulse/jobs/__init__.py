"""Jobs: their models and verbs, and how a client stores them and waits for them.

It imports `wire` and what is below. Start with `submissions.py` (an enqueue) or `models.py` (what verbs
return).
"""
