"""The only package that imports the driver. Statements are in sql/, schema changes in migrations/."""
