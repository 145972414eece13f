"""The commands of the command line.

Each module in the packages of `symphony.commandline.commands.table.GROUPS` is one command. All
other modules contain what several commands share.
"""
