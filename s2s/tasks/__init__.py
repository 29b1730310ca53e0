"""Tasks: one folder for each, and common modules for data checks, figures and losses."""
