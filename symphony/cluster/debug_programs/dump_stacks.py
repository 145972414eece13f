"""Run `py-spy dump` for a process and its descendants, or for all processes of this container.

The arguments are the pid, or 0 for the container, and directories that can contain py-spy in
addition to PATH. The exit code is 3 if py-spy is missing, 4 if it is not permitted, and 5 if there
is no Python process. Otherwise, the exit code is 0 and the output is that of py-spy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

MISSING, NOT_PERMITTED, NO_PYTHON = 3, 4, 5
_DENIALS = ("permission denied", "operation not permitted")


def descendants(root: int) -> list[int]:
    """Return the pids of a process and its descendants, in this order."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(name))
    found = [root]
    for pid in found:
        found += [child for child in children.get(pid, []) if child != os.getpid()]
    return found


def container_processes() -> list[int]:
    """Return the pids of the processes with the same files as this one, without this one.

    The containers of a Pod can share their pids, so a process of this container can have any pid.
    """
    found = []
    own_files = os.readlink("/proc/self/ns/mnt")  # noqa: PTH115
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/ns/mnt") == own_files:  # noqa: PTH115
                found.append(int(name))
        except OSError:
            continue
    return [pid for pid in sorted(found) if pid != os.getpid()]


def is_python(pid: int) -> bool:
    """Return whether a process runs Python, according to its executable and its libraries."""
    try:
        executable = os.path.basename(os.readlink(f"/proc/{pid}/exe"))  # noqa: PTH115, PTH119
        if executable.startswith("python"):
            return True
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return "libpython" in file.read()
    except OSError:
        return False


def main(root: int, directories: list[str]) -> int:
    """Print the stacks, and return the exit code."""
    places = [os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable), *directories]  # noqa: PTH120
    py_spy = shutil.which("py-spy", path=os.pathsep.join(places))
    if py_spy is None:
        return MISSING
    code = NO_PYTHON
    for pid in descendants(root) if root else container_processes():
        if not is_python(pid):
            continue
        done = subprocess.run(
            [py_spy, "dump", "--pid", str(pid)], capture_output=True, text=True, errors="replace"
        )
        if done.returncode == 0:
            sys.stdout.write(done.stdout)
            code = 0
        elif any(denial in done.stderr.lower() for denial in _DENIALS):
            return NOT_PERMITTED
        else:
            sys.stderr.write(done.stderr)
            code = code or done.returncode
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
