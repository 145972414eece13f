"""Rules about shell lines that run only in bash, which an image may not contain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.lint.texts import texts
from symphony.plan.findings import NOTE, finding_of

if TYPE_CHECKING:
    from symphony.model import Experiment, Process
    from symphony.plan.findings import Finding

# The syntax that bash understands and other shells do not, with the words that name it.
_FEATURES = (
    (re.compile(r"(?:^|[\s;&|(!])\[\[\s"), "[["),
    (re.compile(r"\bset\s[^;&|\n]*\bpipefail\b"), "set -o pipefail"),
    (re.compile(r"(?:^|[;&|({\n]|\b(?:then|do|else)\s)\s*source\s"), "source"),
    (re.compile(r"[<>]\((?!\()"), "<(...)"),
    (re.compile(r"(?<!\$)\$'"), "$'...'"),
    (re.compile(r"<<<"), "<<<"),
    (re.compile(r"(?:^|[\s;&|({])\w+\+?=\((?!\()"), "an array"),
    (re.compile(r"\$\{!?\w+\["), "an array"),
    (re.compile(r"(?:^|[\s;&|(!])(?:\[|test)\s[^;&|\n]*\s==\s"), "== in a test"),
)
# Text in single quotes is an argument, for example a program of awk or Python.
_SINGLE_QUOTED = re.compile(r"(?<!\$)'[^']*'")


def rules(experiment: Experiment) -> Iterator[Finding]:
    """Yield a finding for each shell line that needs bash in the image of its process."""
    for process in experiment.list_all_processes():
        yield from _bash_lines(experiment, process)


def _bash_lines(experiment: Experiment, process: Process) -> Iterator[Finding]:
    for text in texts(experiment, process):
        if text.key not in ("cmds", "preamble_cmds"):
            continue
        found = bash_features(text.content)
        if found:
            yield finding_of(
                process,
                "needs-bash",
                f"a shell line contains {', '.join(found)}, so the image must contain bash",
                "otherwise, the line runs in /bin/sh",
                path=text.path,
                level=NOTE,
            )


def bash_features(line: str) -> list[str]:
    r"""Return what a shell line contains that only bash and similar shells understand.

    >>> bash_features("set -euo pipefail; [[ $A == b ]] && source env.sh")
    ['[[', 'set -o pipefail', 'source']
    >>> bash_features("awk '$1 == \"a\" {print}' data; [ $A = b ] && echo $((1 << 2))")
    []
    """
    code = _SINGLE_QUOTED.sub("''", line)
    found = [name for pattern, name in _FEATURES if pattern.search(code)]
    return list(dict.fromkeys(found))
