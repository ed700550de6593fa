"""pulse-ui: the dashboard. It uses the SDK only, as the user who is logged in.

A noun has its pages, views, templates and styles in one folder or module. Start with `app.py`, which has the
routes.
"""
