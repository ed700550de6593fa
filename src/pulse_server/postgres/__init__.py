"""The only package that imports the driver. Statements stand in sql/, schema changes in migrations/."""
