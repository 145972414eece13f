"""Run the tool: `python3 -m simulate`."""

import sys

from simulate.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
