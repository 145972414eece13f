"""The parts of a Pod: its containers, its volumes, and the rules for its scheduling and its end."""
