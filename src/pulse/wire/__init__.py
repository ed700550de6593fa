"""How anything reaches pulsed: where it is, connections and calls, and what their failures mean."""
