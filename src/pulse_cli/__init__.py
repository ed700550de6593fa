"""The operator CLI `pulse`. It talks to pulsed through the SDK only."""
