"""The blocking client: `SyncPulse`, whose verbs are those of `pulse.client`."""
