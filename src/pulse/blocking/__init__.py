"""The blocking client: `SyncPulse`, with the verbs of `pulse.client` in files of the same names."""
