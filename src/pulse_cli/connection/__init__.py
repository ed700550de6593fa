"""The connection to pulsed: its settings, the file that stores them, and the client made from them."""
