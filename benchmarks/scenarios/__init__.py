"""One module per scenario; each has `measure(stand)`."""
