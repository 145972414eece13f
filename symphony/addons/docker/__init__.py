"""Images by the command line of a container engine: gathering what they are made of, building, pushing, removing."""
