"""The settings of processes, groups and experiments: their table, and the types of their values."""
