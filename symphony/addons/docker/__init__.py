"""Build, push and remove images with the command line of a container engine."""
