"""Between the browser and the pages: sessions, checks, forms and rendering.

It knows no noun. Start with `endpoints.py`, which wraps every page and action.
"""
