"""The blocking client: `SyncPulse`, with the verbs of `pulse.client`.

It imports the client, which does not import it. Start with `verbs.py`: a verb is a line.
"""
