"""Building, pushing and removing images with a container engine's command-line program."""
