"""The operator CLI `pulse`. It reaches pulsed through the SDK only."""
