"""One module per page: what it asks of pulsed, and what it shows."""
