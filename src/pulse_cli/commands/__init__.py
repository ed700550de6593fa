"""One module for each command of `pulse`. None imports the SDK or rich before it runs."""
