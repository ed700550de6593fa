"""Jobs: the row, its transitions and its messages. One guarded statement for each transition."""
