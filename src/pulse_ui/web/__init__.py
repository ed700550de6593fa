"""Between the browser and the pages: sessions, checks, forms and rendering."""
