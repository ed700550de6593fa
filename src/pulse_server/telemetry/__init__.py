"""The metrics and traces of a server. Only the exposition knows of Prometheus."""
