"""The keys and values of other programs, such as compose files, and those of symphony for them."""
