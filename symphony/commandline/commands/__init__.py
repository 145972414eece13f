"""The commands of the command line.

Each module in the packages below is one command; see `symphony.commandline.commands.table`. The
modules of this package contain what several commands share.
"""
