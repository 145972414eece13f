"""Programs that the contract tests run with ``python3 -c``.

They require only the standard library.
"""

REPORT = """
import json, os, pathlib, sys
scratch = pathlib.Path(os.environ["SYMPHONY_SCRATCH_DIR"])
configs = os.environ.get("SYMPHONY_CONFIG_DIR")
report = {
    "argv": sys.argv[1:],
    "env": dict(os.environ),
    "scratch": os.listdir(scratch),
    "configs": {
        path.name: path.read_text()
        for path in (pathlib.Path(configs).iterdir() if configs else ())
        if path.is_file()
    },
}
(scratch / "file").touch()
print(json.dumps(report))
"""

# Prints the text in a file of its code, and its own directory.
CODE_REPORT = """
import os, pathlib
code = pathlib.Path(os.environ["SYMPHONY_CODE_DIR"])
print((code / "naïve text").read_text(), pathlib.Path.cwd().relative_to(code.resolve()), flush=True)
"""

SERVER = """
import os, socket
address = os.environ["SYMPH_ECHO_BIND_HOST"], int(os.environ["SYMPH_ECHO_PORT"])
server = socket.create_server(address)
print("listening", flush=True)
for _ in range(int(os.environ.get("CLIENTS", "1"))):
    connection = server.accept()[0]
    connection.sendall(connection.recv(100).upper())
    connection.close()
"""

# Connects to the host of the service ECHO, or of another service of the server.
CLIENT = """
import os, socket, time
host = os.environ.get("HOST_OF", "ECHO")
address = os.environ[f"SYMPH_{host}_HOST"], int(os.environ["SYMPH_ECHO_PORT"])
while True:
    try:
        connection = socket.create_connection(address, timeout=5)
        break
    except OSError:
        time.sleep(0.05)
connection.settimeout(None)
connection.sendall(b"hello")
print(connection.recv(100).decode(), flush=True)
"""

# Accepts connections for two seconds after the first one, and then refuses them. SIGTERM ends it
# with exit code 0.
ANSWERS_FOR_A_WHILE = """
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
address = os.environ["SYMPH_ECHO_BIND_HOST"], int(os.environ["SYMPH_ECHO_PORT"])
server = socket.create_server(address)
print("up", flush=True)
server.accept()[0].close()
server.settimeout(0.1)
end = time.monotonic() + 2
while time.monotonic() < end:
    try:
        server.accept()[0].close()
    except OSError:
        pass
server.close()
while True:
    signal.pause()
"""

# Answers each client with its own name.
REPLICA = """
import os, socket
address = os.environ["SYMPH_POOL_BIND_HOST"], int(os.environ["SYMPH_POOL_PORT"])
server = socket.create_server(address)
while True:
    connection = server.accept()[0]
    connection.sendall(os.environ["SYMPHONY_ROLE"].encode())
    connection.close()
"""

CLIENT_OF_REPLICAS = """
import os, socket, time
for address in os.environ["SYMPH_POOL_ADDRS"].split(","):
    host, port = address.split(":")
    while True:
        try:
            connection = socket.create_connection((host, int(port)), timeout=5)
            break
        except OSError:
            time.sleep(0.05)
    connection.settimeout(None)
    print(connection.recv(100).decode(), flush=True)
"""

# Waits until all ranks have connected to rank 0. Then, rank 1 fails, and the others continue.
RANK = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
# One write for the whole line, so that the lines of several ranks do not mix.
print(f"rank {rank} of {size}\\n", end="", flush=True)
if rank == 0:
    # After a restart, this server cannot bind a port that has closed connections.
    server = socket.socket()
    server.bind(("", address[1]))
    server.listen()
    connections = [server.accept()[0] for _ in range(size - 1)]
    for connection in connections:
        connection.sendall(b"go")
        # The side that closes a connection first keeps its state.
        connection.close()
else:
    while True:
        try:
            connection = socket.create_connection(address, timeout=5)
            break
        except OSError:
            time.sleep(0.05)
    connection.settimeout(None)
    connection.recv(2)
if rank == 1:
    raise SystemExit(3)
time.sleep(3600)
"""

FOREVER = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: exit(0))
print("up", flush=True)
while True:
    time.sleep(3600)
"""

READY_LATER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: exit(0))
print("up", flush=True)
open(sys.argv[1]).read()
print("ready", flush=True)
while True:
    time.sleep(3600)
"""

SIGNALED = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: exit(7))
print("up", flush=True)
while True:
    time.sleep(3600)
"""

COUNT = """
import sys
for number in range(int(sys.argv[1])):
    print("line", number)
"""

SECRET = """
import os, pathlib
print(pathlib.Path(os.environ["SYMPHONY_SECRETS_DIR"], "token").read_text(), end="")
"""

# Exits with the code 7 if its standard streams are a terminal.
ON_TERMINAL = """
import sys
streams = (sys.stdin, sys.stdout, sys.stderr)
raise SystemExit(7 if all(stream.isatty() for stream in streams) else 1)
"""
