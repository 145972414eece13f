"""A server that runs the commands of pages in forks of itself, which have imported symphony.

A page runs hundreds of commands of ``symphony``, and the imports take most of the processor time of
a command. The server imports symphony once. The program ``symphony`` of a page (`command_client`)
sends it the arguments, the working directory, the environment and the standard streams of a
command. The server forks, and the child runs the command as ``python -m symphony`` would. The
client exits as the child has exited, and passes signals on. If the client is killed, so is the
command.

The command differs from one in a process of its own in what no page shows: the process has no
terminal, is not a child of the shell, and does not remove its objects before it exits. Tests of
these properties, and of the imports, start a process; see `tests.cli.conftest.Program.process`.

The server exits at the end of its standard input. Its argument is the path of its socket.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pkgutil
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from symphony.__main__ import main as run_symphony

PACKAGES = ("symphony", "symphony_local", "symphony_tmux", "symphony_kube")
# Programs of their own, and modules that no command of a page imports.
OMITTED = ("__main__", "addons", "testing", "supervisor", "starter", "top", "web")
SIZE_BYTES = 8
_STANDARD_STREAMS = 3


def import_modules() -> None:
    """Import the modules of the commands."""
    for name in PACKAGES:
        _import_package(importlib.import_module(name))
    # The children share this memory as long as they do not change it.
    gc.collect()
    gc.freeze()


def _import_package(package: ModuleType) -> None:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if found.name.rpartition(".")[2] in OMITTED:
            continue
        module = importlib.import_module(found.name)
        if found.ispkg:
            _import_package(module)


class Server:
    """The commands that are running, each with a connection to its client."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(0, selectors.EVENT_READ, sys.exit)

    def serve(self) -> Callable[[], None]:
        """Start commands for clients. Return in each child only, the function that runs its
        command.
        """
        while True:
            for key, _ in self._selector.select():
                # The end of a command closes its connection, which can be the next key.
                if self._selector.get_map().get(key.fd) is key:
                    run: Callable[[], None] | None = key.data()
                    if run is not None:
                        return run

    def _accept(self) -> Callable[[], None] | None:
        connection, _ = self._listener.accept()
        data, descriptors, _, _ = socket.recv_fds(connection, SIZE_BYTES, _STANDARD_STREAMS)
        if len(data) < SIZE_BYTES or len(descriptors) < _STANDARD_STREAMS:
            connection.close()  # the client was killed
            return None
        content = _receive(connection, int.from_bytes(data, sys.byteorder))
        pid = os.fork()
        if pid == 0:
            for key in list(self._selector.get_map().values()):
                os.close(key.fd)
            self._selector.close()
            connection.close()
            return lambda: _run_command(content, descriptors)
        # Both processes set the group, because either can be the first to use it.
        os.setpgid(pid, pid)
        for descriptor in descriptors:
            os.close(descriptor)
        self._watch(pid, os.pidfd_open(pid), connection)
        return None

    def _watch(self, pid: int, pidfd: int, connection: socket.socket) -> None:
        """Pass signals from the client to its command, and the exit of the command to the client.

        Kill the command and what it has started in its process group if the client is killed.
        """

        def pass_on() -> None:
            try:
                numbers = connection.recv(64)
            except ConnectionError:
                numbers = b""
            for number in numbers:
                os.kill(pid, number)
            if not numbers:
                self._selector.unregister(connection)
                os.killpg(pid, signal.SIGKILL)

        def end() -> None:
            _, status = os.waitpid(pid, 0)
            self._selector.unregister(pidfd)
            os.close(pidfd)
            if connection in self._selector.get_map():
                self._selector.unregister(connection)
            with contextlib.suppress(ConnectionError):
                connection.send(status.to_bytes(SIZE_BYTES, sys.byteorder))
            connection.close()

        self._selector.register(connection, selectors.EVENT_READ, pass_on)
        self._selector.register(pidfd, selectors.EVENT_READ, end)


def _receive(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size and (data := connection.recv(size - len(content))):
        content += data
    return content


def _run_command(content: bytes, descriptors: list[int]) -> None:
    """Run a command in this process, and exit."""
    interrupt, directory, program, arguments, environment = content.split(b"\0\0")
    os.setpgid(0, 0)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    # A shell starts its background jobs with this signal ignored.
    is_ignored = interrupt == b"ignored"
    signal.signal(signal.SIGINT, signal.SIG_IGN if is_ignored else signal.default_int_handler)
    os.chdir(directory)
    os.environ.clear()
    os.environb.update(row.split(b"=", 1) for row in environment.split(b"\0") if row)
    words = [word.removeprefix(b"=") for word in arguments.split(b"\0") if word]
    sys.argv = [os.fsdecode(word) for word in (program, *words)]
    sys.path[-1] = str(Path(sys.argv[0]).parent)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        original = getattr(sys, name)
        stream = open(  # noqa: SIM115
            original.fileno(),
            mode,
            encoding=original.encoding,
            errors=original.errors,
            buffering=1 if os.isatty(original.fileno()) or name == "stderr" else -1,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os._exit(_exit_code())


def _exit_code() -> int:
    """Run the command, and what Python runs at exit. Return the exit code."""
    code: object
    try:
        code = run_symphony()
    except SystemExit as exc:
        code = exc.code
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120  # the exit code of Python itself
    return code or 0


def main() -> None:
    # The imports have corrected the import path. Its last entry is the directory of the program,
    # which is that of the program `symphony` in a command.
    assert sys.path[-1] == str(Path(__file__).parent), sys.path
    import_modules()
    server = Server(sys.argv[1])
    # The socket accepts connections.
    os.write(1, b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)
    server.serve()()


if __name__ == "__main__":
    main()
