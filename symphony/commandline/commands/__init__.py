"""The commands of the command line.

Each module that contains a class ``...Commands`` adds one or more commands. The other modules
contain helpers for these classes.
"""
