"""Variables in values that no shell expands, such as ``$SYMPH_REDIS_ADDR`` in an argument.

symphony passes arguments and variables to the programs without changes, and a program rarely
expands them. A finding about such a variable is a warning, because some programs do.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.model import Process
from symphony.model.document.parameters import INDEX_REFERENCES, KEY
from symphony.model.document_path import is_shell_line
from symphony.model.experiment.address_references import ADDRS, FIELDS
from symphony.model.experiment.address_texts import address_texts
from symphony.plan.findings import WARNING, Finding, finding_of
from symphony.plan.resolution.address_values import ServiceNames, shown_key
from symphony.plan.resolution.addresses import PREFIX
from symphony.support.names import did_you_mean, service_env_name

if TYPE_CHECKING:
    from symphony.model import Experiment, ProcessGroup
    from symphony.model.document_path import DocumentPath

RULE = "unexpanded-variable"

_OWN_VARIABLE = r"SYMPH(?:ONY)?_[A-Z0-9_]+"
_OWN_VARIABLES = re.compile(
    rf"(?<!\$)\$(?:({_OWN_VARIABLE})|\{{({_OWN_VARIABLE})[^{{}}]*\}}|\(({_OWN_VARIABLE})\))"
)
_OTHER_VARIABLES = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^{}]*)?\}")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox", "su", "runuser"})
_SCRIPT_OPTION = re.compile(r"-[a-z]*c")
# These programs expand variables in their arguments themselves.
_EXPANDING_PROGRAMS = frozenset({"envsubst"})


def check_unexpanded_variables(experiment: Experiment) -> Iterator[Finding]:
    """Yield a warning for each variable in an argument or a variable's value that no shell expands.

    Variables that symphony does not set are reported only if the experiment was loaded from a file
    without parameters, because they look like parameters.
    """
    source = experiment.source
    has_no_parameters = source is not None and source.document.get(KEY) is None
    references: dict[str, str] | None = None
    for component, path, text in address_texts(experiment):
        if "$" not in text or is_shell_line(path) or _is_expanded(component, path):
            continue
        variables = [next(filter(None, groups)) for groups in _OWN_VARIABLES.findall(text)]
        if variables and references is None:
            references = _references_by_variable(experiment)
        hints = {name: _hint(name, references or {}, path) for name in variables}
        if has_no_parameters:
            hints.update(
                (name, _hint_for_parameter(name))
                for name in _OTHER_VARIABLES.findall(text)
                if name not in hints
            )
        for name, hint in hints.items():
            yield _finding(component, path, name, hint)


def _finding(
    component: Process | ProcessGroup | None, path: DocumentPath, name: str, hint: str
) -> Finding:
    problem = f"{shown_key(component, path)} contains the variable {name}, which no shell expands"
    if component is None:
        return Finding(rule=RULE, level=WARNING, problem=problem, hint=hint, path=path)
    return finding_of(component, RULE, problem, hint, path=path, level=WARNING)


def _references_by_variable(experiment: Experiment) -> dict[str, str]:
    """Return the references that stand for the values of the variables with addresses."""
    services = ServiceNames.of(experiment)
    references: dict[str, str] = {}
    for name in services.names:
        for field in FIELDS:
            if field != ADDRS:
                references[_variable(name, field)] = f"${{{name}.{field}}}"
    for name, count in services.replicas.items():
        for field in FIELDS:
            references[_variable(name, field)] = f"${{{name}.{field}}}"
            if field == ADDRS:
                continue
            for number in range(count):
                replica = _variable(f"{name}-{number}", field)
                references[replica] = f"${{{name}.{number}.{field}}}"
    return references


def _variable(service: str, field: str) -> str:
    return f"{PREFIX}{service_env_name(service)}_{field.upper()}"


def _hint(variable: str, references: Mapping[str, str], path: DocumentPath) -> str:
    if variable in references:
        return f"write {references[variable]}"
    if variable.startswith(PREFIX):
        suggestion = did_you_mean(variable, references).removeprefix("; ")
        return suggestion or "no service has this variable; write ${service.addr}"
    if path[-2] == "env":
        return "set the variable in cmd, where a shell expands it"
    return "write the command as cmd, which a shell runs"


def _hint_for_parameter(name: str) -> str:
    if name in INDEX_REFERENCES:
        return "it is replaced only in a process or a group with replicas"
    return (
        f"declare it, as in {KEY}: {{{name}: value}}, or write the command as cmd, which a shell "
        f"runs; if it is text, declare {KEY}: {{}} and write $${{{name}}}"
    )


def _is_expanded(component: Process | ProcessGroup | None, path: DocumentPath) -> bool:
    """Return whether the value at ``path`` is an argument that a shell or a program expands."""
    key, index = path[-2:]
    if component is None or not isinstance(index, int):
        return False
    words: Sequence[str]
    if key == "command" and path[-3] in ("ready", "healthy"):
        test = getattr(component.settings, path[-3])
        words = (test or {}).get("command", [])
    elif key == "stop_command":
        words = component.settings.stop_command or []
    elif isinstance(component, Process):
        command = component.command or []
        words = [*command, *(component.args or [])]
        if key == "args":
            index += len(command)
    else:
        return False
    programs = [posixpath.basename(word) for word in words[:index]]
    if not _EXPANDING_PROGRAMS.isdisjoint(programs):
        return True
    return index > 0 and _is_script(words, programs, index)


def _is_script(words: Sequence[str], programs: Sequence[str], index: int) -> bool:
    is_after_option = _SCRIPT_OPTION.fullmatch(words[index - 1]) is not None
    return is_after_option and not _SHELLS.isdisjoint(programs)
