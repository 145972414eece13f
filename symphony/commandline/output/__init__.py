"""Command output: tables, text, JSON, progress and drawings."""
