"""The program ``symphony`` of a page: it lets the server run its command (`command_server`).

It starts without ``site`` and imports only modules that are built into Python, so it takes about
ten milliseconds of processor time. Its first arguments are the socket of the server, the path of
the program ``symphony``, and a program that runs the command in a process of its own.
"""

import _signal
import _socket
import posix
import sys

# The signals that a shell, a user or a test sends to a command.
PASSED_ON = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1)
SIZE_BYTES = 8


def main() -> None:
    server, program, in_process, *arguments = sys.argv[1:]
    if any(name.startswith((b"PYTHON", b"COVERAGE_")) for name in posix.environ):
        # Python and coverage read these variables when a program starts.
        posix.execv(in_process, [in_process, *arguments])
    interrupt = b"handled"
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_IGN:
        interrupt = b"ignored"
    environment = [name + b"=" + value for name, value in posix.environ.items()]
    # Each word begins with a character, because a word can be empty.
    words = [b"=" + word.encode("utf-8", "surrogateescape") for word in arguments]
    parts = [interrupt, posix.getcwdb(), program.encode(), b"\0".join(words)]
    content = b"\0\0".join([*parts, b"\0".join(environment)])
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(server)
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    size = len(content).to_bytes(SIZE_BYTES, sys.byteorder)
    connection.sendmsg([size], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    connection.sendall(content)
    for number in PASSED_ON:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, lambda number, _frame: connection.send(bytes([number])))
    answer = connection.recv(SIZE_BYTES)
    if len(answer) < SIZE_BYTES:
        sys.exit("the server of the tests has exited")
    status = int.from_bytes(answer, sys.byteorder)
    if posix.WIFSIGNALED(status):
        number = posix.WTERMSIG(status)
        if number != _signal.SIGKILL:
            _signal.signal(number, _signal.SIG_DFL)
        posix.kill(posix.getpid(), number)
    posix._exit(posix.WEXITSTATUS(status))


main()
