"""The programs that run in a job: the supervisor, its agents on the nodes, and relays for users."""
