"""The creation of an experiment's objects in start order, and their deletion."""
