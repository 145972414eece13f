"""What is felt at the keyboard: `symphony ps` and a press of the tabulator, beside bare Python and kubectl."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from _pairs import Figure, Options, Side, at_most, at_most_more, in_turns, main
from _sleepers import environ, experiment, local, scratch, state_dir
from startup import console_script, program, python

PROCESSES = 20
LONGEST_START, LONGEST_COMPLETION = 0.1, 0.15
# What is typed, and how it is told in the table.
TYPED = {
    "an experiment": ("ps", "exp-"),
    "a process": ("logs", "exp-0", "sleeper"),
    "a command": ("del",),
    "a backend": ("-b", "lo"),
}


def measure(options: Options) -> Iterator[Figure]:
    """The figures of this benchmark."""
    runs = options.pick(41, 9)
    with state_dir() as state, scratch() as home:
        env = {**environ(state), "HOME": str(home)}
        for number in range(3):
            local(state).launch(experiment(PROCESSES, f"exp-{number}"))
        yield starting(runs, env)
        yield from completing(runs, env)


def symphony() -> list[str]:
    """The program as a shell runs it."""
    return console_script() or [sys.executable, "-m", "symphony"]


def starting(runs: int, env: Mapping[str, str]) -> Figure:
    """The time of `symphony ps`."""
    sides = program([*symphony(), "ps", "-b", "local", "exp-1"], env), program(python("pass"), env)
    ours, peer = in_turns(runs, *sides)
    return at_most_more(
        f"symphony ps -b local, {PROCESSES} processes",
        ours,
        peer,
        LONGEST_START,
        peer_name="python -c pass",
    )


def completing(runs: int, env: Mapping[str, str]) -> Iterator[Figure]:
    """The time from the key to the answer, for names of several kinds."""
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
    """How long a completion takes, of which there must be one."""
    if not subprocess.run(command, env=env, capture_output=True, check=True).stdout.strip():
        raise SystemExit(f"nothing was completed: {' '.join(command)}")
    return program(command, env)


def kubectl(words: Sequence[str]) -> list[str] | None:
    """kubectl completing a command, which asks no cluster: a compiled program, for comparison."""
    found = shutil.which("kubectl")
    quietly = f"exec {found} __complete del 2>/dev/null"
    return ["/bin/sh", "-c", quietly] if found and len(words) == 1 else None


if __name__ == "__main__":
    main(__doc__, measure)
