"""Rules on what joins processes: services and the start order. They hold on every backend."""

from __future__ import annotations

from collections.abc import Iterator

from symphony.errors import SpecError
from symphony.lint.findings import ERROR, WARNING, Finding, refused
from symphony.model import Experiment, Process, ProcessGroup
from symphony.model.document_path import Place
from symphony.names import did_you_mean, join_names
from symphony.plan.resolve import start_order
from symphony.plan.topology import Service, components, topology


def rules(experiment: Experiment) -> Iterator[Finding]:
    """What is wrong with the services and the start order of an experiment."""
    yield from _nothing_there(experiment)
    known = {service.name: service for service in topology(experiment).services}
    bound = [service.name for service in known.values() if service.bound]
    for component in components(experiment):
        yield from _connects(component, known, bound)
        yield from _ready(component)
        yield from _encrypts(component)
    yield from _served_twice(experiment)
    yield from _one_port_twice(experiment)
    yield from _used_by_nobody(experiment, known)
    yield from _start_order(experiment)


def place_of(component: Process | ProcessGroup) -> Place:
    """Where a process or group stands in the file form."""
    if isinstance(component, Process) and component.group is not None:
        return ("processes", component.group.name, "processes", component.name)
    return ("processes", component.name)


def path_of(component: Process | ProcessGroup) -> str:
    """What a process or group is called: ``group/process``, ``process`` or ``group``."""
    return component.path if isinstance(component, Process) else component.name


def _found(
    component: Process | ProcessGroup,
    rule: str,
    what: str,
    mend: str,
    *below: str | int,
    level: str = ERROR,
) -> Finding:
    return Finding(
        rule=rule,
        level=level,
        what=what,
        mend=mend,
        place=(*place_of(component), *below),
        processes=(path_of(component),),
    )


def _nothing_there(experiment: Experiment) -> Iterator[Finding]:
    if not experiment.list_members():
        yield Finding(
            rule="no-processes",
            level=ERROR,
            what=f"experiment {experiment.name!r} has no processes",
            mend="add one below processes",
            place=("processes",),
        )
    for group in experiment.list_process_groups():
        if not group.list_processes():
            yield _found(
                group,
                "no-processes",
                f"group {group.name!r} has no processes",
                "add one, or leave it out",
            )


def _connects(
    component: Process | ProcessGroup, known: dict[str, Service], bound: list[str]
) -> Iterator[Finding]:
    for index, name in enumerate(component.settings.connects):
        if name in bound:
            continue
        below = ("connects", index)
        if known[name].exposed:
            owner = known[name].owners[0]
            what = f"connects to {name!r}, which {owner!r} exposes but does not bind"
            yield _found(component, "unbound-service", what, f"let {owner!r} bind it too", *below)
        else:
            hint = (
                did_you_mean(name, bound).removeprefix("; ")
                or f"let a process bind it; bound are {join_names(bound)}"
            )
            yield _found(
                component,
                "unbound-service",
                f"connects to {name!r}, which no process binds",
                hint,
                *below,
            )


def _ready(component: Process | ProcessGroup) -> Iterator[Finding]:
    """A readiness test of a service that is not one's own, set on the process or on its group."""
    if not isinstance(component, Process):
        return
    group = component.group
    ready = component.settings.ready or (group.settings.ready if group else None) or {}
    service = ready.get("tcp") or ready.get("http", [None])[0]
    parts = [component, group] if group else [component]
    own = [name for part in parts for name in (*part.settings.binds, *part.settings.exposes)]
    if service is None or service in own:
        return
    holder = component if component.settings.ready or group is None else group
    what = f"is ready when {service!r} answers, which is not its own"
    mend = (
        did_you_mean(service, own).removeprefix("; ")
        or f"let it bind {service!r}, or name one that it binds"
    )
    place = (*place_of(holder), "ready")
    yield Finding(
        rule="ready", level=ERROR, what=what, mend=mend, place=place, processes=(component.path,)
    )


def _encrypts(component: Process | ProcessGroup) -> Iterator[Finding]:
    settings = component.settings
    for index, name in enumerate(settings.encrypted):
        if name not in settings.binds:
            what = f"encrypts {name!r}, which it does not bind"
            mend = did_you_mean(name, settings.binds).removeprefix("; ") or "say so of who binds it"
            yield _found(component, "encrypted", what, mend, "encrypted", index)


def _served_twice(experiment: Experiment) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for component in components(experiment):
        settings = component.settings
        for name in dict.fromkeys([*settings.binds, *settings.exposes]):
            key = "binds" if name in settings.binds else "exposes"
            ports = {settings.binds.get(name), settings.exposes.get(name)} - {None}
            if len(ports) > 1:
                what = f"binds and exposes {name!r} on two ports"
                yield _found(component, "two-ports", what, "give it one of them", "exposes", name)
            if name in first:
                what = f"binds {name!r}, which {first[name]!r} binds too"
                mend = "let one of them serve it and the others connect, or give it another name"
                yield _found(component, "bound-twice", what, mend, key, name)
            first.setdefault(name, path_of(component))


def _one_port_twice(experiment: Experiment) -> Iterator[Finding]:
    first: dict[int, tuple[str, str]] = {}
    for component in components(experiment):
        for key, given in (
            ("binds", component.settings.binds),
            ("exposes", component.settings.exposes),
        ):
            for name, port in given.items():
                if port is None:
                    continue
                other, owner = first.setdefault(port, (name, path_of(component)))
                if other != name:
                    what = f"gives {name!r} the port {port}, which {other!r} of {owner!r} has"
                    yield _found(
                        component, "port-twice", what, "give one of them another", key, name
                    )


def _used_by_nobody(experiment: Experiment, known: dict[str, Service]) -> Iterator[Finding]:
    used = {name for component in components(experiment) for name in component.settings.connects}
    for component in components(experiment):
        for name in component.settings.binds:
            if name not in used and not known[name].exposed:
                what = f"binds {name!r}, and nobody connects to it"
                mend = (
                    "let who uses it connect to it, expose it to the world outside, or leave it out"
                )
                yield _found(component, "unused-service", what, mend, "binds", name, level=WARNING)


def _start_order(experiment: Experiment) -> Iterator[Finding]:
    names = [component.name for component in components(experiment)]
    clean = True
    for member in experiment.list_members():
        own = {member.name}
        if isinstance(member, ProcessGroup):
            own |= {process.name for process in member.list_processes()}
        for name in member.settings.starts_after:
            if name in own:
                clean = False
                what = f"starts after {name!r}, which is itself or a part of it"
                yield _found(member, "start-order", what, "leave it out", "starts_after", name)
            elif name not in names:
                clean = False
                mend = (
                    did_you_mean(name, names).removeprefix("; ") or f"there are {join_names(names)}"
                )
                what = f"starts after {name!r}, which is not in the experiment"
                yield _found(member, "start-order", what, mend, "starts_after", name)
    if clean:
        try:
            start_order(experiment)
        except SpecError as exc:
            yield refused("start-order", str(exc), place=("processes",))
