"""The commands of `pulse`. None imports the SDK or rich before it runs."""
