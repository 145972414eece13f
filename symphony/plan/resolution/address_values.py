"""Addresses in the values of processes: check and replace references such as ``${redis.addr}``.

The value of ``${<service>.<field>}`` is that of the variable ``SYMPH_<SERVICE>_<FIELD>`` in the
environment of the process. A reference to a replicated service that the process binds therefore
contains the process's own address. The notation is that of
`symphony.model.experiment.address_references`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from symphony.errors import dotted
from symphony.model.document_path import is_shell_line
from symphony.model.experiment.address_references import (
    ADDRS,
    FIELDS,
    FIELDS_OF_EACH,
    INDEX,
    AddressReference,
    is_shell_expansion,
    references,
    replace_references,
)
from symphony.model.experiment.address_texts import address_texts
from symphony.plan.findings import ERROR, Finding, finding_of
from symphony.plan.resolution.addresses import PREFIX, AddressBook, own_environment
from symphony.plan.resolution.services import replicated_services, service_requests
from symphony.support.names import did_you_mean, join_names, service_env_name

if TYPE_CHECKING:
    from symphony.model import Experiment
    from symphony.model.document_path import DocumentPath
    from symphony.model.experiment.component import Component
    from symphony.plan.resolution.addresses import Endpoint

RULE = "address"


@dataclass(frozen=True, slots=True)
class ServiceNames:
    """The services to which values can refer.

    ``names`` contains all services, including those of single replicas. ``replicas`` maps each
    replicated service to the number of its replicas.
    """

    names: frozenset[str]
    replicas: Mapping[str, int]

    @classmethod
    def of(cls, experiment: Experiment) -> ServiceNames:
        """Return the services of an experiment."""
        replicas = dict.fromkeys(replicated_services(experiment), 0)
        names: list[str] = []
        for request in service_requests(experiment):
            names.append(request.name)
            if request.replica_of is not None:
                replicas[request.replica_of] += 1
        return cls(frozenset(names), replicas)

    @classmethod
    def with_addresses(cls, addresses: AddressBook) -> ServiceNames:
        """Return the services that have addresses."""
        replicas = {service: len(addresses.replicas(service)) for service in addresses.replicated}
        return cls(frozenset(addresses), replicas)

    def __contains__(self, service: str) -> bool:
        return service in self.names or service in self.replicas

    def numbers(self, service: str) -> Iterable[int | None]:
        """Return the numbers of a service's replicas, or None alone if it is not replicated."""
        return range(self.replicas[service]) if service in self.replicas else (None,)

    def problem(
        self, reference: AddressReference, *, in_file: bool = False
    ) -> tuple[str, str] | None:
        """Return what is wrong with a reference, and how to fix it, or None.

        ``in_file`` states that a file of `configs` contains the reference.
        """
        service, number = reference.service, reference.number
        if not service:
            notation = "write ${service.field}, ${service.NUMBER.field}"
            return "is not a reference to an address", f"{notation}, or ${reference} for the text"
        if service not in self:
            return self._unknown_service(reference)
        if reference.is_each and not in_file:
            return "stands for a line for each replica, which only a file of configs can have", (
                f"write ${{{service}.addrs}} for all addresses"
            )
        fields = FIELDS_OF_EACH if reference.is_each else FIELDS
        if reference.field not in fields:
            hint = did_you_mean(reference.field, fields) or f"; fields: {join_names(fields)}"
            return f"has an unknown field {reference.field!r}", hint.removeprefix("; ")
        count = self.replicas.get(service)
        if number is not None:
            return self._unknown_replica(reference, count)
        if count == 0 and reference.field != ADDRS and not reference.is_each:
            return f"has no value, because service {service!r} has no replicas", (
                "set replicas of the process that binds it to at least 1"
            )
        return None

    def _unknown_service(self, reference: AddressReference) -> tuple[str, str]:
        known = sorted({*self.names, *self.replicas})
        hint = did_you_mean(reference.service, known) or f"; services: {join_names(known)}"
        return (
            f"refers to service {reference.service!r}, which no process binds or exposes",
            f"{hint.removeprefix('; ')} (write ${reference} for the text)",
        )

    @staticmethod
    def _unknown_replica(reference: AddressReference, count: int | None) -> tuple[str, str] | None:
        service, field = reference.service, reference.field
        if count is None:
            return f"has a number, but service {service!r} has no replicas", (
                f"write ${{{service}.{field}}}"
            )
        if field == ADDRS:
            return (
                "has a number and the field addrs, which contains all addresses",
                f"write ${{{service}.{reference.number}.addr}}",
            )
        if (reference.number or 0) >= count:
            numbers = f"they have the numbers 0 to {count - 1}" if count else "it has none now"
            return f"refers to a replica that service {service!r} does not have", numbers
        return None


# --- checking ---


def check_address_references(experiment: Experiment) -> Iterator[Finding]:
    """Yield an error for each reference to a service or field that does not exist."""
    services: ServiceNames | None = None
    for component, path, text in address_texts(experiment):
        for reference in references(text):
            if services is None:
                services = ServiceNames.of(experiment)
            if _belongs_to_shell(reference, services, in_shell_line=is_shell_line(path)):
                continue
            found = services.problem(reference)
            if found is None:
                continue
            problem, hint = f"{shown_key(component, path)}: {reference} {found[0]}", found[1]
            if component is None:
                yield Finding(rule=RULE, level=ERROR, problem=problem, hint=hint, path=path)
            else:
                yield finding_of(component, RULE, problem, hint, path=path)


def _belongs_to_shell(
    reference: AddressReference, services: ServiceNames, *, in_shell_line: bool
) -> bool:
    """Return whether a reference is left for the shell, because it can be a valid expansion and
    does not look like a reference to an address.
    """
    is_ambiguous = in_shell_line and is_shell_expansion(reference)
    return is_ambiguous and reference.service not in services and reference.field not in FIELDS


def shown_key(component: Component | None, path: DocumentPath) -> str:
    """Return the key of a value for a message, such as ``env.REDIS_URL`` or ``command``."""
    below = path if component is None else path[len(component.document_path) :]
    names = [key for key in below if isinstance(key, str)]
    return dotted({"cmds": "cmd"}.get(name, name) for name in names)


# --- replacing ---


class AddressValues:
    """The replacement of references by the addresses of an experiment.

    ``addresses`` contains all addresses. ``used`` contains the services whose addresses have
    replaced references.
    """

    def __init__(self, addresses: AddressBook) -> None:
        self.used: set[str] = set()
        self._services = ServiceNames.with_addresses(addresses)
        self._shared = addresses.environment()

    def of(self, served: Iterable[Endpoint]) -> ProcessValues:
        """Return the replacement for a process that serves the endpoints ``served``."""
        own = own_environment(served)
        # Thousands of processes can have the same variables.
        variables = {**self._shared, **own} if own else self._shared
        return ProcessValues(self._services, variables, self.used)


@dataclass(frozen=True, slots=True)
class ProcessValues:
    """The replacement of references in the values of one process.

    ``variables`` contains the addresses in its environment. For ``used``, see `AddressValues`.
    """

    services: ServiceNames
    variables: Mapping[str, str]
    used: set[str] = field(default_factory=set)

    def text(self, text: str, *, in_shell_line: bool = False, replica: int | None = None) -> str:
        """Return a text with the addresses instead of the references.

        The references must satisfy the rules of `check_address_references`. Those to each replica
        stand for ``replica``, which is None for a service without replicas.
        """

        def value(reference: AddressReference) -> str | None:
            if _belongs_to_shell(reference, self.services, in_shell_line=in_shell_line):
                return None
            return self._value(reference, replica)

        return replace_references(text, value)

    def texts(self, texts: Iterable[str], *, in_shell_line: bool = False) -> tuple[str, ...]:
        """Return texts with the addresses instead of the references."""
        found = tuple(texts)
        if "${" not in "".join(found):
            # Most processes have no references.
            return found
        return tuple(self.text(text, in_shell_line=in_shell_line) for text in found)

    def command(self, command: Sequence[str] | str) -> list[str] | str:
        """Return a command, which is a list of arguments or a shell line, with the addresses."""
        if isinstance(command, str):
            return self.text(command, in_shell_line=True)
        return list(self.texts(command))

    def _value(self, reference: AddressReference, replica: int | None) -> str:
        service, name = reference.service, reference.field
        self.used.add(service)
        number = replica if reference.is_each else reference.number
        if name == INDEX:
            return str(number or 0)
        if number is not None:
            service = f"{service}-{number}"
        elif name == ADDRS and service not in self.services.replicas:
            # A service without replicas has one address.
            name = "addr"
        return self.variables[f"{PREFIX}{service_env_name(service)}_{name.upper()}"]
