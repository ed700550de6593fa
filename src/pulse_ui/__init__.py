"""pulse-ui: the dashboard. It uses the SDK only, as the user who is logged in."""
