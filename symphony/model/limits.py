"""The limits on the files that symphony parses, and on the directories that it copies.

The files can come from another person, for example in a cloned repository, and the directories from
a container. The limits prevent them from exhausting the memory, the stack or the disk, or from
keeping a command busy. They are far above the needs of the largest experiments.
"""

from __future__ import annotations

# The maximum size of an experiment file, and of a configuration file, which every command reads.
MAX_BYTES = 8 << 20
MAX_CONFIGURATION_BYTES = 1 << 20
# The maximum number of levels of nested mappings and lists.
MAX_DEPTH = 100
# The maximum number of mappings, lists, keys and scalars in a YAML document. Each alias counts as
# all the values that it stands for.
MAX_VALUES = 500_000
# The maximum number of directives, such as `%YAML 1.1`, before a YAML document.
MAX_DIRECTIVES = 100
# The maximum number of digits of a number. Every integer within this limit can be converted to a
# float and to text.
MAX_DIGITS = 300
# The maximum number of files of the code. A command lists and compares them within seconds.
MAX_CODE_FILES = 100_000
# The maximum number of levels of nested directories.
MAX_DIRECTORY_LEVELS = 200

TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
TOO_MANY_VALUES = f"more than {MAX_VALUES} values, if each alias is replaced by its values"
TOO_MANY_DIGITS = f"a number with more than {MAX_DIGITS} digits"
TOO_MANY_DIRECTORIES = f"its directories are nested more than {MAX_DIRECTORY_LEVELS} levels deep"
