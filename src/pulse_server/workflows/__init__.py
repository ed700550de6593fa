"""Workflows: jobs that wait for jobs. ADR-0077

It imports `work`, `topics`, `dispatch` and the rooms below them. Start with `rules.py`, then
`WorkflowSettler` in `service.py`; the verdict on a job is a function of the database, `workflow_verdict_v1`.
"""
