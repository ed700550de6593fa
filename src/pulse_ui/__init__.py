"""pulse-ui: the dashboard. It sees and acts through the SDK only, as the user who is logged in."""
