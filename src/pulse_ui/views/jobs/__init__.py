"""Jobs as pages show them."""
