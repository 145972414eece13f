"""``install``: let the system start experiments again after a reboot."""

from __future__ import annotations

import argparse
import getpass
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note, print_text
from symphony.commandline.parsing.command import Command
from symphony.errors import BackendError

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(
    changes=True,
    dry_run="show the unit; write nothing",
    no_tool="it changes the user's systemd units",
)

UNIT = "symphony-resume.service"
_LINGER = Path("/var/lib/systemd/linger")
# Variables that determine where the experiments are, and which configuration applies.
_VARIABLES = (
    "PATH",
    "SYMPHONY_CONFIG",
    "SYMPHONY_STATE_DIR",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--user-unit",
        action="store_true",
        help="write and enable a systemd unit of the user that runs symphony resume after each "
        "boot",
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Let systemd start experiments again after a reboot of this machine.

    With --user-unit, the command writes a unit for your user, and enables it. After each boot,
    the unit runs symphony resume, which starts the experiments that have the option
    'resume: true' and had not finished. systemd starts the units of a user at the first login.
    To start them at boot, enable lingering: loginctl enable-linger.

    The unit contains the paths of this Python and the variables that select the directory of
    the experiments. Run the command again if they change.

    For example:
      symphony install --user-unit
      symphony install --user-unit --dry-run
      loginctl enable-linger
    """
    del line
    if not args.user_unit:
        raise UsageError("say what to install: --user-unit")
    text = unit_text()
    path = _unit_directory() / UNIT
    if args.dry_run:
        print_text(f"# {path}\n{text}".rstrip("\n"))
        return OK
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print_text(f"wrote {path}")
    _enable()
    user = getpass.getuser()
    if not (_LINGER / user).exists():
        print_note(
            "symphony: systemd runs the unit at your first login; to run it at boot, use: "
            f"loginctl enable-linger {user}"
        )
    return OK


def unit_text() -> str:
    """Return the unit, which runs ``symphony resume`` with this Python."""
    command = [sys.executable, "-m", "symphony", "resume"]
    environment = [
        f"Environment={_quoted(f'{name}={os.environ[name]}')}"
        for name in _VARIABLES
        if os.environ.get(name)
    ]
    lines = [
        "[Unit]",
        "Description=Start experiments of symphony again after a reboot",
        "",
        "[Service]",
        "Type=oneshot",
        # Otherwise, systemd would kill the supervisors when the command has exited.
        "RemainAfterExit=yes",
        *environment,
        # A dollar sign would begin the name of a variable.
        f"ExecStart={' '.join(map(_quoted, command)).replace('$', '$$')}",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Quote a word of a unit; see systemd.syntax(7)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.replace("%", "%%")


def _unit_directory() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "systemd" / "user"


def _enable() -> None:
    commands = [["systemctl", "--user", "daemon-reload"], ["systemctl", "--user", "enable", UNIT]]
    if shutil.which("systemctl") is None:
        print_note("symphony: systemctl is not installed here, so the unit is not enabled")
        return
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            message = done.stderr.strip() or f"exit code {done.returncode}"
            raise BackendError(
                f"the unit was written, but not enabled, because {shlex.join(command)!r} has "
                f"failed: {message}; run it when you are logged in"
            )
