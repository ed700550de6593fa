"""Several worker processes under one supervisor.

It imports errors and intervals alone; the supervisor of pulsed shares `processes.py`. Start with
`supervisor.py`.
"""
