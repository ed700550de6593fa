"""What every room uses: errors, ids, bounds, loops, metrics, shared statements and answers."""
