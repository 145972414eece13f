"""The parts of what a client does to carry out the requests of a user."""
