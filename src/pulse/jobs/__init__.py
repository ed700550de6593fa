"""Jobs: their models and verbs, and how a client stores them and waits for them."""
