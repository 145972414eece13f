"""What runs in a job: the supervisor, its agents on the nodes, and relays for users."""
