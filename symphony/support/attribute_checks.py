"""Checks of the attributes that a program sets, so that a wrong assignment is reported at once.

Without these checks, Python accepts an assignment of any value to any attribute. A misspelled
attribute would have no effect, and a wrong value would fail in a later call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.errors import SpecError, shown

# A function that returns the normalized form of a value, or raises `SpecError`.
Parser = Callable[[Any], Any]


class CheckedAttributes:
    """An object that accepts only valid values for its public attributes.

    An attribute can be set if it is in ``_parsers`` or is a property with a setter. A class of
    another package that inherits from such a class can also have attributes of its own. A method
    can be replaced by a function, as some tests do.
    """

    _parsers: ClassVar[Mapping[str, Parser]] = {}

    # mypy accepts any attribute of a class that has __setattr__.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            if name.startswith("_"):
                object.__setattr__(self, name, value)
            else:
                self._set_public(name, value)

    def _set_public(self, name: str, value: object) -> None:
        parse = self._parsers.get(name)
        if parse is not None:
            value = parse(value)
        else:
            self._check_can_set(name, value)
        object.__setattr__(self, name, value)

    def _check_can_set(self, name: str, value: object) -> None:
        """Raise `SpecError` if the attribute is read-only, or is a method, or does not exist."""
        cls = type(self)
        attribute = _class_attribute(cls, name)
        if isinstance(attribute, property) and attribute.fset is not None:
            return
        if callable(attribute) and not isinstance(attribute, type):
            if callable(value):
                return
            raise SpecError(
                f"{name} is a method of {cls.__name__} and cannot be set to {shown(value)}; "
                f"call it: {name}(...)"
            )
        is_own = cls.__module__.partition(".")[0] == "symphony"
        is_property = isinstance(attribute, (property, functools.cached_property))
        if is_property or (is_own and attribute is not None):
            raise SpecError(f"{name} of {cls.__name__} is read-only and cannot be set")
        if is_own:
            from symphony.support.names import did_you_mean

            public = [other for other in (*self._parsers, *dir(cls)) if not other.startswith("_")]
            raise SpecError(
                f"{cls.__name__} has no attribute {shown(name)}{did_you_mean(name, public)}"
            )

    def __delattr__(self, name: str) -> None:
        """Delete an attribute. Attributes that every object of the class has cannot be deleted."""
        attribute = _class_attribute(type(self), name)
        if name in self._parsers or isinstance(attribute, property):
            raise SpecError(f"{name} of {type(self).__name__} cannot be deleted")
        object.__delattr__(self, name)


def _class_attribute(cls: type[Any], name: str) -> object:
    """Return an attribute of a class without calling its descriptor, or None if there is none."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return None
