"""Print the address at which the other machines of the Ray cluster can reach this one."""

import os
import socket

host, port = os.environ["RAY_ADDRESS"].rsplit(":", 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    # This selects the network interface for the head, and sends nothing.
    probe.connect((host, int(port)))
    print(probe.getsockname()[0])
