"""Start the command line with ``python -m devslurm``."""

import sys

from devslurm.cli import main

sys.exit(main(sys.argv[1:]))
