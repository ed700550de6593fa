"""What people give: the options that commands share, ids, values and answers."""
