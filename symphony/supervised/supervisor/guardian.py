"""The guardian of a supervisor: its parent, which starts a new one when it is killed.

The guardian makes no decisions about processes. It adopts what a killed supervisor leaves behind,
records the exit codes of these processes until the next supervisor observes them, and forks the
next supervisor from itself. It is forked before the supervisor imports its modules, so the two
share most of the guardian's memory. This module is imported by path, and imports almost nothing.

The supervisor writes to a pipe what the guardian has to know, and the guardian holds the end of
another pipe open, so that the supervisor notices the death of its guardian. It then starts a new
guardian as a child; see `symphony.supervised.supervisor.guarding`.

In a job of a batch system, the guardian is the program that the system starts; see `guard_job`. The
programs that start processes on the nodes of the job have such guardians too.
"""

from __future__ import annotations

# The module `signal` needs 0.8 MB for its enumerations.
import _signal  # type: ignore[import-not-found]
import os
import time

# The messages of a supervisor. The first supervisor of a guardian sends the path of the run
# directory and a newline after `SUPERVISES`. After `ENDED`, the guardian exits. After `LEAVES`, it
# starts no new supervisor, and exits when the processes that it has adopted have exited.
SUPERVISES, ENDED, LEAVES = b"+", b".", b"-"

# The name of the process; see proc_pid_comm(5). The kernel limits its length to 15 bytes.
NAME = b"symph-guardian"
LOCK_FILE, EXITS_FILE = "guardian", "exits"
# A supervisor reads an exit soon, so the file is emptied when it has this size.
EXITS_LIMIT_BYTES = 1 << 20

# The signals that the guardian of a job sends to the supervisor.
FORWARDED = (_signal.SIGTERM, _signal.SIGQUIT, _signal.SIGINT, _signal.SIGHUP)

# A supervisor that has worked for this time has not failed at once.
_STABLE_SECONDS = 1.0
_MAX_FAILURES = 10
_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.25, 8.0
_LOCK_TIMEOUT_SECONDS, _LOCK_POLL_SECONDS = 10.0, 0.01
_PIPE_BYTES = 1 << 16
_FILE_MODE = 0o600

_PR_SET_CHILD_SUBREAPER = 36


class Link:
    """The connection of a supervisor to its guardian.

    ``alive`` is a descriptor from which end-of-file can be read when the guardian is dead, and
    ``messages`` one to which the supervisor writes. ``path`` is the run directory whose killed
    supervisor this one replaces, or ``""`` if it is the first supervisor.
    """

    __slots__ = ("alive", "messages", "path")

    def __init__(self, alive: int, messages: int, path: str = "") -> None:
        self.alive = alive
        self.messages = messages
        self.path = path


def guard_first(path: str) -> Link:
    """Fork the first supervisor of a run. Return in each supervisor, and not in the guardian.

    ``path`` is the run directory, which the supervisor can rename. Standard output is a pipe. The
    launcher reads end-of-file from it when the launch is complete, or when the supervisor has
    exited, so that the kernel has closed all of its files.
    """
    pid, link = _fork_supervisor("")
    if pid == 0:
        _close_exit_pipe()
        return link
    # A launcher that fails sends this signal to the process group. The guardian must outlive the
    # supervisor.
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    # Otherwise, the launcher would not notice the death of the supervisor.
    _close_input()
    guardian = _Guardian(path)
    # A supervisor that has not completed its launch has left nothing behind, or the launcher
    # removes it.
    guardian.path = _read_path(link.messages)
    if not guardian.path:
        _wait_for_exit(pid)
        os._exit(0)
    _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
    _close_exit_pipe()
    return guardian.run(pid, link)


def guard_job(path: str, exits: str = "") -> Link:
    """Fork the first supervisor of a job, whose end is that of this program. Return in each
    supervisor, with the signals of `FORWARDED` blocked in those that replace another one.

    The guardian exits with the exit code of the first supervisor that exits by itself. It sends the
    signals of `FORWARDED` to the supervisor. ``exits`` is the path of the file in which it records
    the exits of processes, or ``""`` if the supervisor starts no processes on this machine.
    """
    _signal.pthread_sigmask(_signal.SIG_BLOCK, FORWARDED)
    pid, link = _fork_supervisor("")
    if pid == 0:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, FORWARDED)
        return link
    return _JobGuardian(path, exits).run(pid, link)


def guard_running(path: str, link: Link) -> Link:
    """Guard a supervisor that has lost its guardian. Return as `guard_first` does.

    ``path`` is the run directory, and ``link`` contains this guardian's ends of the pipes.
    """
    _close_input()
    return _Guardian(path).run(None, link)


class _Guardian:
    """The guardian of the run in the directory ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._exits: int | None = None
        # The number of supervisors in a row that have died at once.
        self._failures = 0
        if _signal.getsignal(_signal.SIGCHLD) != _signal.SIG_DFL:
            # The kernel would discard the exit codes.
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        _adopt_orphans()
        self._previous_name = _rename(NAME)
        self._lock = self._take_lock()

    def run(self, supervisor: int | None, link: Link) -> Link:
        """Wait for the supervisor, and fork the next one, until one has ended as it should.

        ``supervisor`` is the pid of a child, or None for another process. Return in each new
        supervisor only.
        """
        started, is_first = time.monotonic(), True
        while True:
            found = None
            if supervisor is not None:
                found = self._reap_until(supervisor)
                os.set_blocking(link.messages, False)
            messages = _read_all(link.messages)
            os.close(link.alive)
            os.close(link.messages)
            self._end_if_over(found, messages)
            has_worked = is_first or SUPERVISES in messages
            is_stable = has_worked and time.monotonic() - started >= _STABLE_SECONDS
            self._failures = 0 if is_stable else self._failures + 1
            if self._failures >= _MAX_FAILURES:
                _write_error(f"{_MAX_FAILURES} supervisors have died at once; giving up\n")
                self._leave()
            delay = self._delay()
            started, is_first = time.monotonic() + delay, False
            supervisor, link = self._fork()
            if supervisor == 0:
                self._become_supervisor()
                time.sleep(delay)
                return link

    def _fork(self) -> tuple[int, Link]:
        return _fork_supervisor(self.path)

    def _end_if_over(self, found: os.waitid_result | None, messages: bytes) -> None:
        """Exit if no other supervisor follows. ``found`` is how the last one has ended, or None if
        it was not a child.
        """
        del found
        if ENDED in messages:
            os._exit(0)
        if LEAVES in messages:
            self._leave()

    def _delay(self) -> float:
        """Return how many seconds the next supervisor waits before it begins its work."""
        if self._failures < 2:
            return 0.0
        return min(_FIRST_DELAY_SECONDS * 2.0 ** (self._failures - 2), _LONGEST_DELAY_SECONDS)

    def _reap_until(self, supervisor: int | None) -> os.waitid_result | None:
        """Collect the exits of children until the supervisor has exited, and return its exit.

        Without a supervisor, return when there are no children.
        """
        while True:
            try:
                # The exit of a process is recorded before it is collected, so that it can always be
                # found in the file or in /proc.
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                return None
            if found is None:
                continue
            if found.si_pid != supervisor:
                self._record(found)
            os.waitpid(found.si_pid, 0)
            if found.si_pid == supervisor:
                return found

    def _record(self, found: os.waitid_result) -> None:
        """Append the exit of a process to the file, if the process can be one of the experiment.

        The processes of an experiment lead sessions of their own, and most of their orphans do not.
        """
        try:
            with open(f"/proc/{found.si_pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123
                fields = file.read(4096).rpartition(b") ")[2].split()
            session, birth = int(fields[3]), int(fields[19])
            if session != found.si_pid:
                return
            code = found.si_status
            if found.si_code != os.CLD_EXITED:
                code += 128
            if self._exits is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._exits = os.open(self._exits_path(), flags, _FILE_MODE)
            if os.fstat(self._exits).st_size > EXITS_LIMIT_BYTES:
                os.ftruncate(self._exits, 0)
            os.write(self._exits, b"%d %d %d\n" % (found.si_pid, birth, code))
        except OSError:
            # For example, the experiment was deleted in the meantime, or the disk is full.
            return

    def _exits_path(self) -> str:
        # The supervisor renames the run directory.
        return f"{self.path}/{EXITS_FILE}"

    def _leave(self) -> None:
        """Collect the exits of the remaining children, and exit. Start no supervisor any more."""
        self._close_lock()
        self._reap_until(None)
        os._exit(0)

    def _take_lock(self) -> int | None:
        """Lock the file that tells other programs that a killed supervisor will be replaced.

        The file contains the pid of the guardian. Return None if it cannot be locked.
        """
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            lock = os.open(f"{self.path}/{LOCK_FILE}", flags, _FILE_MODE)
            self._wait_for_lock(lock)
            os.ftruncate(lock, 0)
            os.pwrite(lock, b"%d" % os.getpid(), 0)
        except OSError:
            return None
        return lock

    def _wait_for_lock(self, lock: int) -> None:
        """Lock a file. Raises OSError if another program keeps the lock.

        A killed guardian can take long to exit, and programs that examine the lock hold it for a
        moment.
        """
        import fcntl

        deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_LOCK_POLL_SECONDS)

    def _close_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _become_supervisor(self) -> None:
        """Give up in a new supervisor what belongs to the guardian."""
        self._close_lock()
        if self._exits is not None:
            os.close(self._exits)
        _rename(self._previous_name)


class _JobGuardian(_Guardian):
    """The guardian that a batch system starts. When it exits, the job and its processes end."""

    def __init__(self, path: str, exits: str) -> None:
        super().__init__(path)
        self._exits_file = exits
        self._supervisor: int | None = None
        # The signals that have arrived while there was no supervisor.
        self._missed: list[int] = []
        for number in FORWARDED:
            _signal.signal(number, self._forward)

    def _forward(self, number: int, frame: object) -> None:
        del frame
        if self._supervisor is None:
            self._missed.append(number)
        else:
            os.kill(self._supervisor, number)

    def _reap_until(self, supervisor: int | None) -> os.waitid_result | None:
        self._supervisor = supervisor
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, FORWARDED)
        while self._missed and supervisor is not None:
            os.kill(supervisor, self._missed.pop())
        try:
            return super()._reap_until(supervisor)
        finally:
            self._supervisor = None

    def _fork(self) -> tuple[int, Link]:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, FORWARDED)
        return _fork_supervisor(self.path)

    def _become_supervisor(self) -> None:
        super()._become_supervisor()
        for number in FORWARDED:
            _signal.signal(number, _signal.SIG_DFL)

    def _end_if_over(self, found: os.waitid_result | None, messages: bytes) -> None:
        del messages
        if found is not None and found.si_code == os.CLD_EXITED:
            os._exit(found.si_status)
        if found is not None and found.si_status in FORWARDED:
            # It was stopped before it could handle the signal.
            os._exit(128 + found.si_status)

    def _leave(self) -> None:
        os._exit(1)

    def _take_lock(self) -> None:
        """Return None: commands do not replace the supervisor of a job."""

    def _record(self, found: os.waitid_result) -> None:
        """Record an exit, unless the processes of the experiment are on other machines."""
        if self._exits_file:
            super()._record(found)

    def _exits_path(self) -> str:
        return self._exits_file


def _fork_supervisor(path: str) -> tuple[int, Link]:
    """Fork a supervisor, and return its pid, or 0 in the supervisor.

    Also return the ends of the pipes that belong to the process.
    """
    alive_read, alive_write = os.pipe()
    messages_read, messages_write = os.pipe()
    while True:
        try:
            pid = os.fork()
            break
        except OSError as exc:
            # For example, the user has too many processes.
            _write_error(f"cannot start a supervisor: {exc.strerror}; trying again\n")
            time.sleep(_LONGEST_DELAY_SECONDS)
    if pid:
        os.close(alive_read)
        os.close(messages_write)
        return pid, Link(alive_write, messages_read)
    os.close(alive_write)
    os.close(messages_read)
    return 0, Link(alive_read, messages_write, path)


def _close_input() -> None:
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)


def _close_exit_pipe() -> None:
    """Replace the pipe of `guard_first` with the supervisor's log, which is standard error."""
    os.dup2(2, 1)


def _wait_for_exit(pid: int) -> None:
    """Wait for a child to exit."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        # The signal SIGCHLD was ignored when the child exited.
        return


def _read_path(messages: int) -> str:
    """Wait for the first message of a supervisor, and return the run directory that it contains.

    Return ``""`` if the supervisor has exited without a message.
    """
    content = b""
    while not content.endswith(b"\n"):
        data = os.read(messages, _PIPE_BYTES)
        if not data:
            return ""
        content += data
    return os.fsdecode(content[1:-1])


def _read_all(messages: int) -> bytes:
    """Return the remaining messages of a supervisor. If reading can wait, wait for its death."""
    content = b""
    try:
        while data := os.read(messages, _PIPE_BYTES):
            content += data
    except BlockingIOError:
        # A child of the supervisor, which is executing its program, still has the pipe open.
        return content
    return content


def _adopt_orphans() -> None:
    """Become the parent of the processes that the supervisor leaves behind; see prctl(2)."""
    # The import of the module `ctypes` takes ten times as long.
    import _ctypes

    try:
        program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        prctl = _ctypes.dlsym(program, "prctl")
        _ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    except (AttributeError, OSError) as exc:
        _write_error(f"cannot adopt orphans: {exc}\n")


def _rename(name: bytes) -> bytes:
    """Change the name that programs such as ps show for this process. Return the previous name."""
    try:
        with open("/proc/self/comm", "r+b", buffering=0) as file:  # noqa: PTH123
            previous = file.read(64).strip()
            file.write(name)
    except OSError:
        return name
    return previous


def _write_error(message: str) -> None:
    """Write to the supervisor's log, which may not be writable."""
    try:
        os.write(2, f"guardian: {message}".encode())
    except OSError:
        return
