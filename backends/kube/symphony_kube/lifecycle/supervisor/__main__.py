"""The program of a supervisor.

``python -m symphony_kube.lifecycle.supervisor DIRECTORY [DESCRIPTOR]`` supervises the run that the
directory describes. When the supervisor is running, it writes its pid to the descriptor.
``--in-cluster NAMESPACE NAME`` supervises the run that a Secret describes, in a Pod.
"""

from __future__ import annotations

# This must come first, because it determines which modules are imported from now on.
from symphony.support.import_path import use_own_import_path

use_own_import_path()

import os  # noqa: E402
import sys  # noqa: E402


def main(arguments: list[str]) -> int:
    """Supervise a run until nothing is left to decide.

    A supervisor outside the cluster forks, and the child process supervises the run.
    """
    if arguments[0] == "--in-cluster":
        from symphony_kube.lifecycle.supervisor import program

        return program.supervise_in_cluster(*arguments[1:])
    # The process that starts the supervisor need not wait for it. The imports take some time, so
    # they follow the fork.
    if os.fork():
        return 0
    from symphony_kube.lifecycle.supervisor import program

    directory, *descriptors = arguments
    return program.supervise_directory(directory, *(int(item) for item in descriptors))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
