"""``python -m symphony`` is ``symphony``."""

import sys

from symphony.commandline import main

if __name__ == "__main__":
    sys.exit(main())
