"""Output of the commands: tables, text, JSON, progress and drawings."""
