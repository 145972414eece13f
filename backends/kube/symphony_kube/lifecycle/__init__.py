"""Create an experiment's objects in the start order, and delete them."""
