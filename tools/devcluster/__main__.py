"""Run the tool: `python3 -m devcluster up`."""

import sys

from devcluster.cli import main

sys.exit(main(sys.argv[1:]))
