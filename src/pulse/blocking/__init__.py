"""The blocking client: `SyncPulse`, with the verbs of `pulse.client`."""
