"""What a server counts while it works. Anyone may count; only the exposition knows of Prometheus."""
