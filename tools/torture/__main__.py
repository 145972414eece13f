"""Run the tool: `python3 -m torture`."""

import sys

from torture.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
