"""Creation and deletion of an experiment's objects, in the start order."""
