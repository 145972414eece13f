"""Drawing an experiment: what is drawn, in which form, and where it goes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from symphony.commandline.exit_codes import OK, UsageError, error_message
from symphony.commandline.output.terminal import (
    RESET,
    STATE_COLOURS,
    has_colour,
    print_note,
    terminal_width,
)
from symphony.commandline.output.views import process_state
from symphony.drawing import FORMATS, SUFFIXES, draw
from symphony.errors import NotFound, SymphonyError
from symphony.names import join_names
from symphony.plan.topology import Topology, folded, of_status

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.drawing.text import Signs
    from symphony.status import ExperimentStatus

JSON = "json"
GRAPH_FORMATS = (*FORMATS, JSON)
_SUFFIXES = {**SUFFIXES, ".json": JSON}
# What Python sets LC_CTYPE to where the locale is C (PEP 538): not the user's choice.
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
_STATES = re.compile(rf"\b({'|'.join(STATE_COLOURS)})\b")


def names_a_file(given: str) -> bool:
    """Whether a file is meant, and not an experiment: names have neither dots nor slashes."""
    return given != "." and ("." in given or "/" in given)


def choose_format(asked: str | None, as_json: bool, output: str | None) -> str:
    """The form to draw in: the one asked for, else that of the file's name, else text. Raises `UsageError`."""
    if as_json:
        if asked not in (None, JSON):
            raise UsageError(f"--json and --format {asked} are two forms; leave one of them out")
        return JSON
    if asked is not None:
        return asked
    if output in (None, "-"):
        return "text"
    suffix = Path(str(output)).suffix
    if suffix not in _SUFFIXES:
        raise UsageError(
            f"which form has {output}? end it in {join_names(_SUFFIXES)}, or say --format"
        )
    return _SUFFIXES[suffix]


def find_experiment_status(cluster: Cluster, name: str) -> ExperimentStatus | None:
    """How an experiment of that name is, None where there is none, or nobody can tell, which is told."""
    try:
        return cluster.describe_experiment(name)
    except NotFound:
        return None
    except SymphonyError as exc:
        print_note(f"symphony: drawn without states: {error_message(exc)}")
        return None


def find_topology(cluster: Cluster, status: ExperimentStatus) -> Topology:
    """What runs and how it is joined; without services, which is told, where a backend cannot tell of them."""
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
    """Draw a topology, with states where there are any, to standard output or a file."""
    states = (
        None if status is None else {process.name: process_state(process) for process in status}
    )
    _tell_of_others(topology, states)
    if form == JSON:
        drawn = _json(topology, status, states)
    else:
        shown = topology if every else folded(topology)
        drawn = (
            draw(shown, form, states)
            if form != "text" or writes_a_file(output)
            else _on_terminal(shown, states)
        )
    if not writes_a_file(output):
        sys.stdout.write(drawn)
        return OK
    try:
        Path(str(output)).write_text(drawn, encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"{output} cannot be written: {exc.strerror}") from exc
    print_note(f"symphony: wrote {output}")
    return OK


def writes_a_file(output: str | None) -> bool:
    """Whether a file is to be written; ``-`` is standard output."""
    return output not in (None, "-")


def _tell_of_others(topology: Topology, states: Mapping[str, str] | None) -> None:
    drawn = {name for node in topology.nodes for name in node.processes}
    others = [name for name in states or {} if name not in drawn]
    if others:
        print_note(
            f"symphony: {topology.experiment} runs as it was launched, with more than is drawn: {join_names(others)}"
        )


def _json(
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


def _on_terminal(topology: Topology, states: Mapping[str, str] | None) -> str:
    from symphony.drawing.text import text

    paint = _painted if has_colour(sys.stdout) else None
    lines = text(
        topology,
        states,
        width=terminal_width(sys.stdout),
        signs=_signs(sys.stdout, os.environ),
        paint=paint,
    )
    return "\n".join(lines) + "\n"


def _painted(words: str) -> str:
    return _STATES.sub(lambda found: f"{STATE_COLOURS[found[1]]}{found[1]}{RESET}", words)


def _signs(stream: TextIO, environ: Mapping[str, str]) -> Signs:
    """The signs that a stream can carry and the user's locale can show."""
    from symphony.drawing.text import ASCII, UNICODE

    if not re.search("utf-?8", _locale(environ), re.IGNORECASE):
        return ASCII
    try:
        "".join(UNICODE).encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


def _locale(environ: Mapping[str, str]) -> str:
    """The locale that the user chose for characters; one with UTF-8 where none was chosen."""
    chosen = {name: environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)}
    if chosen.get("LC_CTYPE") in _COERCED and "LANG" in chosen:
        del chosen["LC_CTYPE"]
    return next(iter(chosen.values()), "UTF-8")
