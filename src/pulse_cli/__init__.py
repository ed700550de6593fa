"""The operator CLI `pulse`. It reaches pulsed through the SDK only.

A noun has its commands and views in a file or folder of its name; each is imported when its command runs.
Start with `program.py`, which lists the commands.
"""
