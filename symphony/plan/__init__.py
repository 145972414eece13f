"""Turn an experiment into a plan: addresses, merged settings and the start order. Pure."""
