"""How things look, as tables, as JSON and as plain fields. Nothing here asks the server."""
