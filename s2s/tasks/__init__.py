"""Tasks: one folder for each, with common modules for data, figures and losses."""
