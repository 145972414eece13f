"""Parsing of the command line, and shell completion."""
