"""Hypothesis strategies: valid names, unusual text, and whole experiments in their file form.

Experiments are drawn as the plain data of a file, so that one strategy tests the loader, the
schema, the dump and the plan. The loader accepts every experiment that is drawn, and it resolves to
a plan.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from symphony.model.settings import setting_types
from symphony.plan.resolution.addresses import AddressScheme

SCHEME = AddressScheme(
    backend="paper", host=lambda service: f"{service}.example", bind_host="0.0.0.0"
)

# Names that are also keys of the file form. A reader must not confuse the two.
WORDS = (
    "name",
    "env",
    "command",
    "args",
    "cmd",
    "cmds",
    "labels",
    "value",
    "log",
    "processes",
    "volumes",
    "ready",
    "binds",
    "y",
    "on",
    "no",
    "null",
    "true",
)
names = st.one_of(
    st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True),
    st.sampled_from(WORDS),
    st.just("x" * 63),
)

AWKWARD = (
    "",
    " ",
    "'",
    '"',
    "a b",
    "$HOME",
    "`id`",
    "$(id)",
    "a\nb",
    "\n",
    "\r\n",
    "\t",
    "\x01\x1b[0m",
    "\x7f",
    "\x85",
    "\u2028",
    "é",
    "日本",
    "🎻",
    "\ufeff",
    "yes",
    "no",
    "null",
    "~",
    "010",
    "1e3",
    "0x10",
    "1:30",
    "2024-01-01",
    "=",
    "<<",
    "- a",
    "a: b",
    "#c",
    "%d",
    "{}",
    "[]",
    "&a",
    "*a",
    "!x",
    "|",
    ">",
    "-",
    "--",
    "?",
    "\\",
    "\\n",
    " a ",
    "a\n ",
    "trailing\n\n",
)
texts = st.one_of(
    st.sampled_from(AWKWARD),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)
filled = texts.filter(bool)
lines = texts.filter(lambda text: bool(text.strip()))
absolute = texts.map(lambda text: f"/{text}")
ports = st.integers(1, 65535)
counts = st.integers(0, 10**9)
quantities = st.one_of(
    st.integers(0, 10**12),
    st.floats(0.001, 1000).map(lambda number: round(number, 3)),
    st.sampled_from(["500m", "4Gi", "1.5", ".5", "2e3", "100k"]),
)
env_names = st.from_regex(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,6}", fullmatch=True)
image_names = st.sampled_from(["rl", "rl:v1", "registry.example:5000/team/rl_2:1.0-b"])
label_keys = st.one_of(
    st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,6}[A-Za-z0-9])?", fullmatch=True),
    st.sampled_from(["example.org/gpu", "true", "010"]),
)
label_values = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,6}[A-Za-z0-9])?)?", fullmatch=True)
labels = st.dictionaries(label_keys, label_values, max_size=2)
environments = st.dictionaries(env_names, texts, max_size=3)


def strings(element: st.SearchStrategy[str] = texts) -> st.SearchStrategy[Any]:
    """Draw a string or a list of strings."""
    return st.one_of(element, st.lists(element, min_size=1, max_size=3))


def record(
    required: dict[str, st.SearchStrategy[Any]] | None = None, **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a mapping with required and optional keys."""
    return st.fixed_dictionaries(required or {}, optional=optional)


# Kubernetes refuses a request that is above the limit.
_requests = {"cpu": st.sampled_from([0, 0.001, "1m"]), "memory": st.sampled_from([0, "1M", 10**6])}
_limits = {
    "cpu": st.one_of(st.integers(1, 10**12), st.sampled_from(["500m", ".5", "2e3"])),
    "memory": st.one_of(st.integers(10**6, 10**12), st.sampled_from(["4Gi", "1.5M", "2e7"])),
}
_mount = {"mount_path": absolute}
_file_names = st.from_regex(r"[-_a-zA-Z0-9]{1,6}", fullmatch=True)
_files = st.one_of(
    st.dictionaries(_file_names, filled, min_size=1, max_size=2),
    _file_names.map(lambda name: f"/some/{name}"),
    st.lists(_file_names, min_size=1, max_size=2, unique=True),
)

volumes: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "nfs": record({"server": filled, "path": absolute, **_mount}, name=names),
    "host_path": record(
        {"path": absolute, **_mount},
        type=st.sampled_from(setting_types.HOST_PATH_TYPES),
        read_only=st.booleans(),
        name=names,
    ),
    "pvc": record({"claim": filled, **_mount}, read_only=st.booleans(), name=names),
    "empty_dir": record(_mount, memory=st.booleans(), size=quantities, name=names),
    "shared_memory": record(size=quantities),
    "secret": record({"secret": filled, **_mount}, files=_files, name=names),
    "config": record({"config": filled, **_mount}, files=_files, name=names),
}
volume = st.one_of(
    *(settings.map(lambda drawn, kind=kind: {kind: drawn}) for kind, settings in volumes.items())
)  # type: ignore[misc]


def _mounted_at(item: dict[str, Any]) -> str:
    path: str = next(iter(item.values())).get("mount_path", "/dev/shm")
    return path


tolerations = st.one_of(
    record(
        {"key": label_keys},
        operator=st.just("Equal"),
        value=texts,
        effect=st.sampled_from(setting_types.TAINT_EFFECTS),
    ),
    record({"operator": st.just("Exists")}, key=label_keys),
    record({"key": label_keys, "effect": st.just("NoExecute")}, toleration_seconds=counts),
)
_plain = st.one_of(st.none(), st.booleans(), st.integers(), texts)
yml = st.dictionaries(
    texts,
    st.one_of(_plain, st.lists(_plain, max_size=2), st.dictionaries(texts, _plain, max_size=2)),
    max_size=2,
)


def _names_a_program(command: Any) -> bool:
    return bool(command.strip() if isinstance(command, str) else command and command[0])


container_level: dict[str, st.SearchStrategy[Any]] = {
    "env": environments,
    "resource_request": record(**_requests),
    "resource_limit": record(
        **_limits,
        gpu=st.integers(0, 8),
        gpu_resource=st.sampled_from(["amd.com/gpu", "nvidia.com/mig-1g.5gb"]),
    ),
    "image_pull_policy": st.sampled_from(setting_types.PULL_POLICIES),
    "volumes": st.lists(volume, max_size=2, unique_by=_mounted_at),
    "container_yml": yml,
    "ready": st.one_of(
        record({"command": strings().filter(_names_a_program)}, timeout=st.floats(0.1, 100)),
        record({"log": st.sampled_from(["ready", "^up$", r"\d+"])}, timeout=st.integers(1, 100)),
    ),
}
pod_level: dict[str, st.SearchStrategy[Any]] = {
    "restart_policy": st.sampled_from(setting_types.RESTART_POLICIES),
    "termination_grace_period": counts,
    "job": st.one_of(
        st.booleans(), record(backoff_limit=counts, active_deadline=counts, ttl=counts)
    ),
    "node_selector": labels,
    "tolerations": st.lists(tolerations, max_size=2),
    "spread": st.just("zone"),
    "together": st.just(True),
    "topology_spread": st.just([{"key": "zone"}]),
    "priority_class": st.just("high"),
    "queue": st.just("team"),
    "labels": labels,
    "pod_yml": yml,
}
whole_level = {**container_level, **pod_level}
_argv = record({"command": strings()}, args=strings())
_shell = st.one_of(record({"cmd": lines}), record({"cmds": strings(lines)}))
_place = {"start_dir": filled, "preamble_cmds": strings(lines)}


@st.composite
def processes(draw: st.DrawFn, *, grouped: bool) -> dict[str, Any]:
    """Draw a process without services and start dependencies, which depend on other processes.

    A process in a group has no volumes, because they might have the mount path of a volume of the
    group.
    """
    own = draw(st.one_of(_argv, _shell))
    level = (
        {key: item for key, item in container_level.items() if key != "volumes"}
        if grouped
        else whole_level
    )
    settings = draw(record(container_image=image_names, **_place, **level))
    return {**own, **settings}


def _owners(members: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for member in members.values():
        found.append(member)
        found.extend(member.get("processes", {}).values())
    return found


repositories = st.one_of(
    st.from_regex(r"[a-z0-9]{1,6}(/[a-z0-9]{1,4})?", fullmatch=True),
    st.sampled_from(
        ["127.0.0.1:5000/team/rl", "registry.example/rl", "env", "name", "images", "010", "a__b"]
    ),
)
_entries = st.lists(
    record({"name": _file_names, "path": filled}, force_update=st.booleans()),
    max_size=2,
    unique_by=lambda entry: str(entry["name"]),
)
images = st.dictionaries(
    repositories,
    record(
        dockerfile=filled,
        context_directories=_entries,
        temp_directory=filled,
        build_options=strings(),
    ),
    max_size=2,
)


@st.composite
def experiments(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an experiment in its file form."""
    taken = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    members: dict[str, Any] = {}
    while taken:
        name = taken.pop(0)
        size = draw(st.integers(0, min(2, len(taken))))
        inside, taken = taken[:size], taken[size:]
        if inside:
            group = draw(record(**_place, **whole_level))
            members[name] = {
                **group,
                "processes": {inner: draw(processes(grouped=True)) for inner in inside},
            }
        else:
            members[name] = draw(processes(grouped=False))
    _join(draw, members)
    _order(draw, members)
    own = draw(
        record(
            secrets=_files,
            preamble_cmds=strings(lines),
            start_dir=filled,
            env=environments,
            images=images,
            sbatch_options=strings(),
            record_usage=st.booleans(),
            resume=st.booleans(),
        )
    )
    _tell_secrets(draw, members, own.get("secrets", {}))
    return {"name": draw(names), **own, "processes": members}


def _join(draw: st.DrawFn, members: dict[str, Any]) -> None:
    """Add services: each has one owner, and each fixed port belongs to one service."""
    owners = _owners(members)
    services = draw(st.lists(names, max_size=4, unique=True))
    fixed = draw(st.lists(ports, min_size=len(services), max_size=len(services), unique=True))
    bound = []
    for service, number in zip(services, fixed, strict=True):
        owner = draw(st.sampled_from(owners))
        how = draw(st.sampled_from(["binds", "exposes"]))
        owner.setdefault(how, {})[service] = draw(st.sampled_from([None, number]))
        if how == "binds":
            bound.append(service)
            if draw(st.booleans()):
                owner.setdefault("encrypted", []).append(service)
            if draw(st.booleans()):
                owner["healthy"] = draw(
                    st.sampled_from([{"tcp": service, "every": 2}, {"http": [service, "/health"]}])
                )
            owner["ready"] = draw(
                st.sampled_from(
                    [
                        {"tcp": service},
                        {"http": [service, "/health"], "timeout": 5},
                        {"http": service},
                    ]
                )
            )
    for owner in owners:
        if bound and draw(st.booleans()):
            owner["connects"] = draw(
                st.lists(st.sampled_from(bound), min_size=1, max_size=2, unique=True)
            )


def _tell_secrets(draw: st.DrawFn, members: dict[str, Any], secrets: Any) -> None:
    """Add variables with secrets, whose names no other variable has."""
    given = [secrets] if isinstance(secrets, str) else secrets
    known = [source.rpartition("/")[2] for source in given]
    for owner in _owners(members):
        if known and draw(st.booleans()):
            owner["env_secrets"] = {
                draw(st.sampled_from(["SECRET_ONE", "SECRET_TWO"])): draw(st.sampled_from(known))
            }


def _order(draw: st.DrawFn, members: dict[str, Any]) -> None:
    """Add start dependencies on earlier processes, which cannot form a cycle."""
    earlier: list[str] = []
    for name, member in members.items():
        if earlier and draw(st.booleans()):
            waits = draw(
                st.dictionaries(
                    st.sampled_from(earlier), st.sampled_from(setting_types.CONDITIONS), min_size=1
                )
            )
            member["starts_after"] = draw(st.sampled_from([waits, list(waits), next(iter(waits))]))
        earlier.append(name)
