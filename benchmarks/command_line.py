"""Measure the response times of `symphony ps` and of shell completion.

The peers are bare Python and kubectl.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from _pairs import Figure, Options, Side, at_most, at_most_seconds_more, in_turns, main
from _sleepers import environ, experiment, local, temporary_directory, temporary_state_directory
from startup import console_script, program, python

PROCESSES = 20
LONGEST_START, LONGEST_COMPLETION = 0.06, 0.15
# The words on the command line for each kind of name to complete.
TYPED = {
    "an experiment": ("ps", "exp-"),
    "a process": ("logs", "exp-0", "sleeper"),
    "a command": ("del",),
    "a backend": ("-b", "lo"),
}


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    runs = options.pick(41, 9)
    with temporary_state_directory() as state, temporary_directory() as home:
        env = {**environ(state), "HOME": str(home)}
        for number in range(3):
            local(state).launch(experiment(PROCESSES, f"exp-{number}"))
        yield starting(runs, env)
        yield from completing(runs, env)


def symphony() -> list[str]:
    """Return the command that runs the program as a shell would."""
    return console_script() or [sys.executable, "-m", "symphony"]


def starting(runs: int, env: Mapping[str, str]) -> Figure:
    """Return the figure for the duration of `symphony ps`."""
    sides = program([*symphony(), "ps", "-b", "local", "exp-1"], env), program(python("pass"), env)
    ours, peer = in_turns(runs, *sides)
    return at_most_seconds_more(
        f"symphony ps -b local, {PROCESSES} processes",
        ours,
        peer,
        LONGEST_START,
        peer_name="python -c pass",
    )


def completing(runs: int, env: Mapping[str, str]) -> Iterator[Figure]:
    """Yield the figures for the time that it takes to complete each kind of name."""
    for what, words in TYPED.items():
        sides = [answering([*symphony(), "__complete", *words], env), program(python("pass"), env)]
        other = kubectl(words)
        if other is not None:
            sides.append(program(other, env))
        ours, bare, *peers = in_turns(runs, *sides)
        yield at_most(
            f"completing {what}",
            "s",
            ours,
            LONGEST_COMPLETION,
            peer=bare,
            peer_name="python -c pass",
        )
        for peer in peers:
            yield at_most(
                f"completing {what}",
                "s",
                ours,
                None,
                peer=peer,
                peer_name="kubectl, the same of its own",
            )


def answering(command: Sequence[str], env: Mapping[str, str]) -> Side:
    """Return a side that measures one completion, which must offer at least one name."""
    if not subprocess.run(command, env=env, capture_output=True, check=True).stdout.strip():
        raise SystemExit(f"nothing was completed: {' '.join(command)}")
    return program(command, env)


def kubectl(words: Sequence[str]) -> list[str] | None:
    """Return the command with which kubectl completes the name of one of its commands.

    Return None if kubectl is not installed, or if ``words`` has no equivalent in kubectl. The
    command needs no cluster. kubectl is an example of a compiled program.
    """
    found = shutil.which("kubectl")
    quietly = f"exec {found} __complete del 2>/dev/null"
    return ["/bin/sh", "-c", quietly] if found and len(words) == 1 else None


if __name__ == "__main__":
    main(__doc__, measure)
