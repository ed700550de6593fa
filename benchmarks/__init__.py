"""Measurements that anyone can repeat: `python3 dev.py bench`."""
