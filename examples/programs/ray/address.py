"""Print the address at which the other machines of the Ray cluster can reach this one."""

import os
import socket

host, port = os.environ["RAY_ADDRESS"].rsplit(":", 1)
[(family, kind, _, _, head), *_] = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)
with socket.socket(family, kind) as probe:
    # This selects the network interface for the head, and sends nothing.
    probe.connect(head)
    print(probe.getsockname()[0])
