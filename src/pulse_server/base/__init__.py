"""What every room uses: errors, ids, bounds of input, `Loop`, metrics, shared statements and answers.

It imports no other room. Start with `errors.py`, then `sharing.py`.
"""
