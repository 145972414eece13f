"""Creation of the objects of an experiment in the start order, and their deletion."""
