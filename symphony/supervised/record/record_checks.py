"""Checks of the data in the files of a run directory. All functions are pure.

A file can be damaged, for example by a full disk or by an editor. The checks cover the values that
readers use, so that readers need no checks of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from symphony.status import State
from symphony.supervised.processes.spec import PASSED_SETTING_CHECKS
from symphony.support.names import is_name

Check = Callable[[Any], bool]

_TEXT = frozenset({str})


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_filled_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_integer_or_none(value: Any) -> bool:
    return value is None or _is_integer(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and _are_texts(value)


def _is_command(value: Any) -> bool:
    return _is_text_list(value) and value != []


def _is_integer_list(value: Any) -> bool:
    return isinstance(value, list) and all(_is_integer(item) for item in value)


def _is_text_mapping(value: Any) -> bool:
    return isinstance(value, dict) and _are_texts(value.values())


def _are_texts(values: Iterable[Any]) -> bool:
    # Every launch checks some values of each process, so this is written without a Python loop.
    return _TEXT.issuperset(map(type, values))


def _is_address_mapping(value: Any) -> bool:
    return _is_text_mapping(value) and all(
        address.rpartition(":")[2].isdecimal() for address in value.values()
    )


def _is_process_name(value: Any) -> bool:
    return isinstance(value, str) and is_name(value)


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_state(value: Any) -> bool:
    """Return whether a value is the state of a run in a checkpoint. Unknown keys are allowed."""
    if not isinstance(value, dict) or _first_error(value, _STATE):
        return False
    tracks = [*value["tracks"].values(), *value["leaving"].values()]
    return (
        _has_valid(value, _STATE_OPTIONS)
        and all(_has_valid(track, _TRACK) for track in tracks)
        and not any(_first_error(request, _REQUEST) for request in value["requests"])
        and all(_has_valid(item, {"grace": _is_number_or_none}) for item in value["requests"])
    )


def _is_ending(value: Any) -> bool:
    return not _first_error(value, {"action": _is_text, "reason": _is_text}) and _has_valid(
        value, {"failed": _is_text, "cause": _is_text, "reason_code": _is_text}
    )


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_process_state(value: Any) -> bool:
    return isinstance(value, str) and value in _PROCESS_STATES


def _has_valid(value: Any, checks: Mapping[str, Check]) -> bool:
    """Return whether a mapping has valid values of those keys that it contains."""
    if not isinstance(value, dict):
        return False
    return all(check(value[key]) for key, check in checks.items() if key in value)


def _has_optional(value: Any, checks: Mapping[str, Check]) -> bool:
    """Return whether a mapping has only the keys in ``checks``, with valid values."""
    if not isinstance(value, dict) or not value.keys() <= checks.keys():
        return False
    return all(checks[key](item) for key, item in value.items())


_HEALTH_LIMITS: Mapping[str, Check] = {
    "every": _is_number,
    "failures": _is_integer,
    "timeout": _is_number,
}


def _is_health_test_or_none(value: Any) -> bool:
    return value is None or not _first_error(value, _HEALTH_LIMITS)


_RESTART: Mapping[str, Check] = {
    "policy": _is_text,
    "max_restarts": _is_integer_or_none,
    "backoff": _is_number_or_none,
    "final_codes": _is_integer_list,
}

_POLICIES: Mapping[str, Check] = {
    "ends_with": _is_text_list,
    "on_failure": _is_text,
    "max_restarts": _is_integer_or_none,
    "backoff": _is_number_or_none,
    "deadline": _is_number_or_none,
    "record_usage": _is_flag,
    "resume": _is_flag,
}

_PREVIOUS: Mapping[str, Check] = {
    "processes": _is_list,
    "env": _is_text_mapping,
    "services": _is_address_mapping,
}

_MANIFEST: Mapping[str, Check] = {
    "experiment": _is_text,
    "backend": _is_text,
    "run_id": _is_filled_text,
    "services": _is_address_mapping,
    "exposed": _is_text_list,
    "env": _is_text_mapping,
    "processes": _is_list,
}

_PROCESS: Mapping[str, Check] = {
    "name": _is_process_name,
    "group": _is_text_or_none,
    "argv": _is_command,
    "cwd": _is_text,
    "env": _is_text_mapping,
    "env_secrets": _is_text_mapping,
    "grace": _is_number,
    "starts_after": _is_text_mapping,
    "releases": _is_integer_list,
    "connects": _is_text_list,
    "gpus": _is_integer,
    "preamble": _is_text_list,
}

# The manifests of earlier versions do not contain these values.
_PROCESS_OPTIONS: Mapping[str, Check] = {
    "stop_command": _is_text_list,
    "healthy": _is_health_test_or_none,
    **PASSED_SETTING_CHECKS,
}

_SUPERVISOR: Mapping[str, Check] = {
    "pid": _is_integer,
    "birth": _is_number,
    "host": _is_text,
    "boot": _is_text,
}

_EVENT: Mapping[str, Check] = {"event": _is_text, "at": _is_number}

_PROCESS_STATES = frozenset(state.value for state in State)

_STATE: Mapping[str, Check] = {"tracks": _is_mapping, "leaving": _is_mapping, "requests": _is_list}

_STATE_OPTIONS: Mapping[str, Check] = {
    "created": _is_number_or_none,
    "stopping_since": _is_number_or_none,
    "together_since": _is_number_or_none,
    "finished": _is_flag,
    "ending": _is_ending,
    "restarting": _is_flag,
    "restart_at": _is_number,
    "restart_cause": _is_text,
    "restarts": _is_integer,
    "restarts_in_row": _is_integer,
    "evictions": _is_integer,
    "restarted": _is_number_or_none,
    "launched_boot_seconds": _is_number_or_none,
    "request_count": _is_integer,
    "revision": _is_integer,
    "replaced": _is_flag,
}

_TRACK: Mapping[str, Check] = {
    "state": _is_process_state,
    "ready": _is_flag,
    "was_ready": _is_flag,
    "never_ready": _is_flag,
    "not_ready_in_time": _is_flag,
    "test_result": _is_text,
    "unhealthy": _is_text,
    "exit_code": _is_integer_or_none,
    "reason": _is_text,
    "restarts": _is_integer,
    "failures_in_row": _is_integer,
    "retries": _is_integer,
    "started": _is_number_or_none,
    "ended": _is_number_or_none,
    "stopped": _is_flag,
    "next_start": _is_number_or_none,
    "kill_at": _is_number_or_none,
    "pid": _is_integer_or_none,
    "birth": _is_number_or_none,
    "first_started": _is_number_or_none,
    "log_start": _is_integer,
    "group": _is_integer_or_none,
    "outdated": _is_flag,
    "attempts": _is_integer,
    "background": _is_text,
    "in_background": _is_flag,
}

_REQUEST: Mapping[str, Check] = {
    "number": _is_integer,
    "kind": _is_text,
    "names": _is_text_list,
}

# The values that an event of each kind contains, in addition to its kind and its time.
_EVENTS: Mapping[str, Mapping[str, Check]] = {
    "waiting": {"process": _is_text, "reason": _is_text},
    "started": {
        "process": _is_text,
        "pid": _is_integer,
        "birth": _is_number,
        "ready": _is_flag,
    },
    "ready": {"process": _is_text},
    "not-ready": {"process": _is_text, "reason": _is_text},
    "tested": {"process": _is_text, "reason": _is_text, "result": _is_text},
    "unhealthy": {"process": _is_text, "reason": _is_text},
    "exited": {"process": _is_text, "code": _is_integer_or_none},
    "start-failed": {"process": _is_text, "reason": _is_text, "restarts_in": _is_number},
    "never": {"process": _is_text, "reason": _is_text},
    "ending": {"action": _is_text, "reason": _is_text},
    "restarting": {"reason": _is_text, "restarts_in": _is_number},
    "terminating": {"process": _is_text, "kill_at": _is_number},
    "start-requested": {"process": _is_text},
    "changed": {
        "revision": _is_integer,
        "added": _is_text_list,
        "removed": _is_text_list,
        "restarted": _is_text_list,
    },
    "signaled": {"process": _is_text, "signal": _is_text},
    "background": {"process": _is_text, "program": _is_text, "running": _is_flag},
    "requested": {
        "number": _is_integer,
        "request": _is_text,
        "names": _is_text_list,
        "grace": _is_number_or_none,
    },
    "request-done": {"number": _is_integer},
    "checkpoint": {"folded_bytes": _is_integer, "state": _is_state},
}


def manifest_error(data: Any) -> str:
    """Return what is wrong with the data of a manifest, or ``""`` if nothing is wrong."""
    error = _first_error(data, _MANIFEST)
    if not error and not _has_optional(data.get("previous", {}), _PREVIOUS):
        error = "'previous' is not valid"
    if error:
        return error
    previous = data.get("previous", {}).get("processes", [])
    for index, process in enumerate([*data["processes"], *previous]):
        error = _first_error(process, _PROCESS)
        if error:
            return f"processes[{index}]: {error}"
        options = {key: process[key] for key in _PROCESS_OPTIONS if key in process}
        if not _has_optional(options, _PROCESS_OPTIONS):
            return f"processes[{index}]: how it is stopped or tested is not valid"
        restart = process.get("restart", "Never")
        if not isinstance(restart, str) and not _has_optional(restart, _RESTART):
            return f"processes[{index}]: 'restart' is not valid"
    if not _has_optional(data.get("policies", {}), _POLICIES):
        return "'policies' is not valid"
    if not _is_text_mapping(data.get("parameters", {})):
        return "'parameters' is not valid"
    error = _change_error(data)
    if error:
        return error
    return _service_error(data)


def _change_error(manifest: Mapping[str, Any]) -> str:
    """Return what is wrong with the latest change of a manifest, or ``""``."""
    change = manifest.get("change")
    if change is None:
        return ""
    error = _first_error(change, {**_EVENT, **_EVENTS["changed"], "directory": _is_filled_text})
    return f"'change' is not valid: {error}" if error else ""


def _service_error(manifest: Mapping[str, Any]) -> str:
    """Return what is wrong with the services of a manifest, or ``""`` if nothing is wrong."""
    ports = {port for process in manifest["processes"] for port in process["releases"]}
    for service, address in manifest["services"].items():
        if int(address.rpartition(":")[2]) not in ports:
            return f"no process binds service {service!r}"
    for service in manifest["exposed"]:
        if service not in manifest["services"]:
            return f"service {service!r} has no address"
    return ""


def is_supervisor_record(data: Any) -> bool:
    """Return whether ``data`` is a valid record of a supervisor."""
    return not _first_error(data, _SUPERVISOR)


def is_event(data: Any) -> bool:
    """Return whether ``data`` is a valid event. An event of an unknown kind is valid."""
    if _first_error(data, _EVENT):
        return False
    checks = _EVENTS.get(data["event"])
    return checks is None or not _first_error(data, checks)


def _first_error(data: Any, checks: Mapping[str, Check]) -> str:
    """Return a message about the first invalid value, or ``""`` if all values are valid."""
    if not isinstance(data, dict):
        return "it is not a JSON object"
    for key, check in checks.items():
        if key not in data:
            return f"{key!r} is missing"
        if not check(data[key]):
            return f"{key!r} is not valid"
    return ""
