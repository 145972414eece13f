"""Print whether debugpy can be imported, and a port that is free, as JSON."""

import importlib.util
import json
import socket
import sys


def main() -> None:
    """Print the result."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    is_installed = importlib.util.find_spec("debugpy") is not None
    sys.stdout.write(json.dumps({"debugpy": is_installed, "port": port}))


if __name__ == "__main__":
    main()
