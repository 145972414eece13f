"""The first process of a machine: it reaps orphaned processes and does nothing else."""

import os
import signal

# A handler would lose the signal of a process that exits after the handler has run and before the
# next wait. A blocked signal stays pending.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
while True:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    signal.sigwait([signal.SIGCHLD])
