"""References to the addresses of services, such as ``${redis.addr}``, in the values of a process.

``${service.field}`` stands for a part of the address of a service, and ``${service.2.field}`` for
that of replica 2. In a file of ``configs``, a line with ``${service.*.field}`` is repeated for each
replica. The dot distinguishes such a reference from a parameter, and from every valid
reference to a shell variable. ``$${service.field}`` stands for the text ``${service.field}``. This
module contains the notation; `symphony.plan.resolution.address_values` replaces the references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ADDRS = "addrs"
FIELDS = ("addr", "host", "port", "bind_host", ADDRS)
# The placeholder for the number of each replica, and the field that contains this number.
EACH, INDEX = "*", "index"
FIELDS_OF_EACH = ("addr", "host", "port", "bind_host", INDEX)

_CONTENT = r"[A-Za-z_][-A-Za-z0-9_]*(?:\.(?:[-A-Za-z0-9_]+|\*))+"
_WHOLE_CONTENT = re.compile(_CONTENT)
_REFERENCE = re.compile(rf"(\$+)\{{({_CONTENT})\}}")


@dataclass(frozen=True, slots=True)
class AddressReference:
    """A reference. ``content`` is the text between the braces.

    ``number`` is the number of a replica, or None. ``is_each`` is true for a reference to each
    replica. ``service`` is empty if the reference has too many parts.
    """

    content: str
    service: str = ""
    number: int | None = None
    field: str = ""
    is_each: bool = False

    @classmethod
    def of(cls, content: str) -> AddressReference:
        """Return the reference whose text between the braces is ``content``."""
        service, *middle, field = content.split(".")
        if not middle:
            return cls(content, service, None, field)
        if len(middle) == 1 and middle[0].isdecimal():
            return cls(content, service, int(middle[0]), field)
        if middle == [EACH]:
            return cls(content, service, None, field, is_each=True)
        return cls(content)

    def __str__(self) -> str:
        return f"${{{self.content}}}"


def is_content(text: str) -> bool:
    """Return whether ``text`` is the text between the braces of a reference."""
    return _WHOLE_CONTENT.fullmatch(text) is not None


def references(text: str) -> Iterator[AddressReference]:
    """Yield the references in a text, except for those that stand for literal text."""
    if "${" not in text:
        return
    for match in _REFERENCE.finditer(text):
        if len(match[1]) % 2 == 1:
            yield AddressReference.of(match[2])


def replace_references(text: str, value: Callable[[AddressReference], str | None]) -> str:
    """Return a text in which each reference is replaced by its value.

    A reference remains unchanged if ``value`` returns None. Two dollar signs before a reference
    stand for one literal dollar sign, so an even number of dollar signs never begins a reference.
    """
    if "${" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        dollars, content = match.groups()
        escaped_dollars = "$" * (len(dollars) // 2)
        if len(dollars) % 2 == 0:
            return f"{escaped_dollars}{{{content}}}"
        found = value(AddressReference.of(content))
        return match[0] if found is None else f"{escaped_dollars}{found}"

    return _REFERENCE.sub(replacement, text)


def escape(text: str) -> str:
    """Return the text that `replace_references` replaces by ``text``.

    >>> escape("${user.home} ${HOME}")
    '$${user.home} ${HOME}'
    """
    if "${" not in text:
        return text
    return _REFERENCE.sub(lambda match: f"{match[1] * 2}{{{match[2]}}}", text)


def is_shell_expansion(reference: AddressReference) -> bool:
    """Return whether a shell could expand the reference itself.

    ``${out-model.bin}`` is the value of the variable ``out`` with a default.
    """
    return "-" in reference.content.partition(".")[0]
