"""Between the browser and the pages: who visits, what is allowed, and how an answer is made."""
