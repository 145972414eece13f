"""Command-line parsing and shell completion."""
