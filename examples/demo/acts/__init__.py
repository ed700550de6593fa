"""The acts of the story. Each raises NotAsPromised when what it is to show does not happen."""
