"""The commands of the command line.

A module with a class ``...Commands`` adds one or more commands. The other modules support them.
"""
