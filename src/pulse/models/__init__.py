"""What the verbs answer with: plain frozen data, and how it is read off the wire."""
