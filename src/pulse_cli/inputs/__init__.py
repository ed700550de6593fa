"""What users type: shared options, ids, values and answers to questions."""
