"""The output of ``symphony graph``: the format, the drawing and the output file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from symphony.commandline.exit_codes import OK, UsageError, error_message
from symphony.commandline.output.printing import show_text
from symphony.commandline.output.terminal import (
    RESET,
    STATE_COLOURS,
    has_colour,
    print_coloured,
    print_note,
    terminal_width,
)
from symphony.drawing import FORMATS, SUFFIXES, draw
from symphony.errors import NotFound, SymphonyError
from symphony.plan.topology import Topology, folded, of_status
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.drawing.text_tree import Signs
    from symphony.status import ExperimentStatus

JSON_FORMAT = "json"
GRAPH_FORMATS = (*FORMATS, JSON_FORMAT)
_SUFFIXES = {**SUFFIXES, ".json": JSON_FORMAT}
# If the locale is C, Python sets LC_CTYPE to one of these values (PEP 538).
_COERCED_LOCALES = ("C.UTF-8", "C.utf8", "UTF-8")
_STATES = re.compile(rf"\b({'|'.join(STATE_COLOURS)})\b")


def names_a_file(given: str) -> bool:
    """Return whether ``given`` is the name of a file rather than of an experiment.

    The name of an experiment contains neither dots nor slashes. A single dot means the current
    experiment.
    """
    return given != "." and ("." in given or "/" in given)


def choose_format(requested: str | None, as_json: bool, output: str | None) -> str:
    """Return the requested format, the format implied by the output file, or ``text``.

    Raises `UsageError` if two different formats are requested, or if the output file's format is
    unknown.
    """
    if as_json:
        if requested not in (None, JSON_FORMAT):
            raise UsageError(f"--json and --format {requested} contradict each other; remove one")
        return JSON_FORMAT
    if requested is not None:
        return requested
    if output is None or not writes_a_file(output):
        return "text"
    suffix = Path(output).suffix
    if suffix not in _SUFFIXES:
        suffixes = join_names(_SUFFIXES)
        raise UsageError(
            f"the format of {output} is not known; use a suffix among {suffixes}, or add --format"
        )
    return _SUFFIXES[suffix]


def find_experiment_status(cluster: Cluster, name: str) -> ExperimentStatus | None:
    """Return the status of an experiment, or None if the experiment does not exist.

    If the status is not available, the function prints a note and returns None.
    """
    try:
        return cluster.describe_experiment(name)
    except NotFound:
        return None
    except SymphonyError as exc:
        print_note(f"symphony: drawn without states: {error_message(exc)}")
        return None


def find_topology(cluster: Cluster, status: ExperimentStatus) -> Topology:
    """Return an experiment's processes and their connections.

    If the backend cannot report services, the result contains no services and a note is printed.
    Raises `NotFound` if the experiment does not exist.
    """
    try:
        return cluster.describe_topology(status.name)
    except NotFound:
        raise
    except SymphonyError as exc:
        print_note(f"symphony: drawn without services: {error_message(exc)}")
        return of_status(status)


def show_graph(
    topology: Topology,
    status: ExperimentStatus | None,
    *,
    form: str,
    output: str | None,
    every: bool,
) -> int:
    """Write a drawing of a topology to standard output or a file, and return the exit code.

    ``form`` is one of `GRAPH_FORMATS`. If a status is given, the drawing includes the processes'
    states. Similar processes are merged into one node unless ``every`` is true or the format is
    JSON. Raises `UsageError` if the file cannot be written.
    """
    states: dict[str, str] | None = None
    if status is not None:
        states = {process.name: process.displayed_state for process in status}
    _note_undrawn_processes(topology, states)
    shown = topology if every else folded(topology)
    if form == JSON_FORMAT:
        drawn = _to_json(topology, status, states)
    elif form == "text" and not writes_a_file(output):
        print_coloured(_for_terminal(shown, states))
        return OK
    else:
        drawn = draw(shown, form, states)
    if output is None or not writes_a_file(output):
        show_text(drawn)
        return OK
    try:
        Path(output).write_text(drawn, encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"{output} cannot be written: {exc.strerror}") from exc
    print_note(f"symphony: wrote {output}")
    return OK


def writes_a_file(output: str | None) -> bool:
    """Return whether the output goes to a file. ``-`` means standard output."""
    return output not in (None, "-")


def _note_undrawn_processes(topology: Topology, states: Mapping[str, str] | None) -> None:
    """Print a note if the launched experiment has processes that are not in the drawing."""
    drawn = {name for node in topology.nodes for name in node.processes}
    others = [name for name in states or {} if name not in drawn]
    if others:
        print_note(
            f"symphony: {topology.experiment} was launched with processes that are not drawn: "
            f"{join_names(others)}"
        )


def _to_json(
    topology: Topology, status: ExperimentStatus | None, states: Mapping[str, str] | None
) -> str:
    import json

    data: dict[str, Any] = topology.to_dict()
    for process in data["processes"]:
        process["state"] = (states or {}).get(process["name"])
    whole = {
        "experiment": data.pop("experiment"),
        "backend": None if status is None else status.backend,
        **data,
    }
    return json.dumps(whole, indent=2) + "\n"


def _for_terminal(topology: Topology, states: Mapping[str, str] | None) -> list[str]:
    """Return the lines of a drawing that fits the width and encoding of standard output."""
    from symphony.drawing.text_tree import text_tree

    return text_tree(
        topology,
        states,
        width=terminal_width(sys.stdout),
        signs=_choose_signs(sys.stdout, os.environ),
        paint=_paint_states if has_colour(sys.stdout) else None,
    )


def _paint_states(words: str) -> str:
    return _STATES.sub(lambda found: f"{STATE_COLOURS[found[1]]}{found[1]}{RESET}", words)


def _choose_signs(stream: TextIO, environ: Mapping[str, str]) -> Signs:
    """Return Unicode signs if the stream and the user's locale support them, else ASCII signs."""
    from symphony.drawing.text_tree import ASCII, UNICODE

    return UNICODE if supports_unicode(stream, environ) else ASCII


def supports_unicode(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether the stream and the user's locale support the signs of a drawing."""
    from symphony.drawing.text_tree import UNICODE

    if not re.search("utf-?8", _locale(environ), re.IGNORECASE):
        return False
    try:
        "".join(UNICODE).encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _locale(environ: Mapping[str, str]) -> str:
    """Return the user's locale for character encoding, or ``UTF-8`` if no locale is set."""
    chosen = {name: environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)}
    if chosen.get("LC_CTYPE") in _COERCED_LOCALES and "LANG" in chosen:
        # Python, not the user, has set LC_CTYPE.
        del chosen["LC_CTYPE"]
    return next(iter(chosen.values()), "UTF-8")
