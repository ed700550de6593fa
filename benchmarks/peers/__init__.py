"""Other job queues, measured beside pulse in the same run: `python3 dev.py bench --peers`.

The programs in programs/ import this package inside the peers' own environments, which lack our
packages.
"""
