"""The commands of the command line.

Except for `base_commands`, each module with a class whose name ends with ``Commands`` adds one or
more commands. All other modules contain helpers for these classes.
"""
