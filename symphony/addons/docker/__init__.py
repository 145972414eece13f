"""Building, pushing and removing images with the command line of a container engine."""
