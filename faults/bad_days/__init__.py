"""What the tests of the bad days share."""
