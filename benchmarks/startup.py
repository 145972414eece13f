"""Measure how long `import symphony`, `symphony ls` and `symphony ps` take.

The peers are a Python process that imports three modules of the standard library, and a Python
process that does nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from _pairs import (
    Figure,
    Options,
    Side,
    at_most,
    at_most_seconds_more,
    at_most_times,
    in_turns,
    main,
    timed,
)
from _sleepers import environ, experiment, local, symphony, temporary_state_directory

# How much longer `ls` and `ps` may take than a Python process that does nothing.
MOST_SECONDS_MORE = 0.06
THREE_OF_THE_STANDARD_LIBRARY = "import argparse, dataclasses, pathlib"
# Third-party modules that are already loaded before the program's first line were imported by .pth
# files, not by symphony.
FOREIGN = """
import sys
before = set(sys.modules)
import symphony
names = {name.partition(".")[0] for name in set(sys.modules) - before} - {"symphony"}
import json
print(json.dumps(sorted(names - sys.stdlib_module_names)))
"""


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    runs = options.pick(31, 7)
    with temporary_state_directory() as state:
        yield foreign_modules()
        yield importing(runs, environ(state))
        for number in range(3):
            local(state).launch(experiment(2, f"exp-{number}"))
        yield from listing(runs, environ(state))


def foreign_modules() -> Figure:
    """Return the figure for the third-party modules that `import symphony` imports."""
    names = json.loads(subprocess.check_output([sys.executable, "-c", FOREIGN]))
    return at_most(
        "import symphony: third-party modules", "modules", [len(names)], 0, note=", ".join(names)
    )


def importing(runs: int, env: Mapping[str, str]) -> Figure:
    """Return the figure for a Python process that imports symphony and exits."""
    ours, peer = in_turns(
        runs,
        program(python("import symphony"), env),
        program(python(THREE_OF_THE_STANDARD_LIBRARY), env),
    )
    return at_most_times(
        "python -c 'import symphony'", ours, peer, 2.0, peer_name="argparse dataclasses pathlib"
    )


def listing(runs: int, env: Mapping[str, str]) -> Iterator[Figure]:
    """Yield the figures for `symphony ls` and `symphony ps` with three experiments."""
    bare = program(python("pass"), env)
    for program_name, command in {
        "symphony": console_script(),
        "python -m symphony": symphony(),
    }.items():
        for words in (["ls"], ["ps", "exp-0"]) if command else ():
            ours, peer = in_turns(runs, program([*command, *words], env), bare)
            what = f"{program_name} {words[0]}"
            yield at_most_seconds_more(
                what, ours, peer, MOST_SECONDS_MORE, peer_name="python -c pass"
            )


def console_script() -> list[str]:
    """Return the command of the `symphony` program that is installed next to this Python.

    Return an empty list if the program is not installed.
    """
    found = shutil.which("symphony", path=str(Path(sys.executable).parent))
    return [found] if found else []


def python(line: str) -> list[str]:
    """Return the arguments that run a line of code with this Python."""
    return [sys.executable, "-c", line]


def program(command: Sequence[str], env: Mapping[str, str]) -> Side:
    """Return a function that runs a program and returns the time from its start to its exit."""

    def run() -> None:
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)

    run()  # The first run is slower, because it reads modules from the disk and compiles them.
    return lambda: timed(run)


if __name__ == "__main__":
    main(__doc__, measure)
