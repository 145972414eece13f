"""Output of the command line: tables, JSON, logs, drawings and progress."""
