"""How long symphony takes to begin: `import symphony` and `symphony ls`, beside bare Python."""

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
    at_most_more,
    at_most_times,
    in_turns,
    main,
    timed,
)
from _sleepers import environ, experiment, local, state_dir, symphony

THREE_OF_THE_STANDARD_LIBRARY = "import argparse, dataclasses, pathlib"
# What is there before any program's own line was put there by .pth files, not by symphony.
FOREIGN = """
import sys
before = set(sys.modules)
import symphony
names = {name.partition(".")[0] for name in set(sys.modules) - before} - {"symphony"}
import json
print(json.dumps(sorted(names - sys.stdlib_module_names)))
"""


def measure(options: Options) -> Iterator[Figure]:
    """The figures of this benchmark."""
    runs = options.pick(31, 7)
    with state_dir() as state:
        yield foreign_modules()
        yield importing(runs, environ(state))
        for number in range(3):
            local(state).launch(experiment(2, f"exp-{number}"))
        yield from listing(runs, environ(state))


def foreign_modules() -> Figure:
    """What `import symphony` imports of others'."""
    names = json.loads(subprocess.check_output([sys.executable, "-c", FOREIGN]))
    return at_most(
        "import symphony: third-party modules", "modules", [len(names)], 0, note=", ".join(names)
    )


def importing(runs: int, env: Mapping[str, str]) -> Figure:
    """The time of a Python that imports symphony and ends."""
    ours, peer = in_turns(
        runs,
        program(python("import symphony"), env),
        program(python(THREE_OF_THE_STANDARD_LIBRARY), env),
    )
    return at_most_times(
        "python -c 'import symphony'", ours, peer, 2.0, peer_name="argparse dataclasses pathlib"
    )


def listing(runs: int, env: Mapping[str, str]) -> Iterator[Figure]:
    """The time of `symphony ls` with three experiments."""
    bare = program(python("pass"), env)
    for what, command in {
        "symphony ls": console_script(),
        "python -m symphony ls": symphony(),
    }.items():
        if command:
            ours, peer = in_turns(runs, program([*command, "ls"], env), bare)
            yield at_most_more(what, ours, peer, 0.1, peer_name="python -c pass")


def console_script() -> list[str]:
    """The installed `symphony`, where it is beside this Python."""
    found = shutil.which("symphony", path=str(Path(sys.executable).parent))
    return [found] if found else []


def python(line: str) -> list[str]:
    """A command line of this Python."""
    return [sys.executable, "-c", line]


def program(command: Sequence[str], env: Mapping[str, str]) -> Side:
    """How long a program takes from start to end."""

    def run() -> None:
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)

    run()  # the first one reads from the disk, and compiles
    return lambda: timed(run)


if __name__ == "__main__":
    main(__doc__, measure)
