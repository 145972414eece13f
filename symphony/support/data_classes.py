"""Data classes without the import of `dataclasses`, for commands such as ``ls`` and supervisors.

The module `dataclasses` imports `inspect`, `ast` and `tokenize`, and executes the code of up to
eight functions for each class. For the commands that are typed most, this took a third of their
time. This module executes one function for each class, the constructor, when it is first called,
and shares the others.

The classes have the same behaviour as those of `dataclasses`. The functions of `dataclasses`, such
as ``asdict`` and ``replace``, accept them: the descriptions that these functions read are created
when they are first read. A module that ``ls``, ``ps`` or a supervisor imports uses this module, and
all others use `dataclasses`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

Instance = TypeVar("Instance")

# Stands for a value that was not given.
_MISSING: Any = object()
# The attributes that the functions of `dataclasses` read.
_LIBRARY_ATTRIBUTES = ("__dataclass_fields__", "__dataclass_params__")


class DataField:
    """A field of a data class. ``default_factory`` is called for each instance without a value."""

    __slots__ = ("compare", "default", "default_factory", "metadata", "name", "repr")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        compare: bool = True,
        repr: bool = True,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = ""
        self.default = default
        self.default_factory = default_factory
        self.compare = compare
        self.repr = repr
        self.metadata = metadata or {}

    @property
    def is_required(self) -> bool:
        """True if a caller of the constructor must give a value."""
        return self.default is _MISSING and self.default_factory is _MISSING


def fields(data_class: type) -> tuple[DataField, ...]:
    """Return the fields of a data class of this module, in the order of their declaration."""
    declaration: _Declaration = vars(data_class)["_declaration"]
    return declaration.fields


def replace(instance: Instance, /, **changes: Any) -> Instance:
    """Return a copy of a data class, of this module or of `dataclasses`, with changed fields."""
    declaration = vars(type(instance)).get("_declaration")
    if declaration is None:
        import dataclasses

        return dataclasses.replace(instance, **changes)  # type: ignore[type-var]
    values = {name: getattr(instance, name) for name in declaration.names}
    return type(instance)(**{**values, **changes})


class _Declaration:
    """The declarations of a class: its fields, and the arguments of the decorator."""

    def __init__(self, cls: type, options: Mapping[str, bool]) -> None:
        self.options = options
        self.fields = tuple(_declared_fields(cls))
        self.names = tuple(each.name for each in self.fields)
        self.shown_names = tuple(each.name for each in self.fields if each.repr)
        self.read_compared = _values_reader([each.name for each in self.fields if each.compare])


def _declared_fields(cls: type) -> list[DataField]:
    """Return the fields of a class, and leave only its plain default values in the class."""
    for base in cls.__mro__[1:]:
        if "_declaration" in vars(base):
            raise TypeError(
                f"{cls.__name__} extends the data class {base.__name__}; use `dataclasses`"
            )
    found = []
    for name in vars(cls).get("__annotations__", {}):
        value = vars(cls).get(name, _MISSING)
        field = value if isinstance(value, DataField) else DataField(default=value)
        field.name = name
        if field.default is not _MISSING:
            setattr(cls, name, field.default)
        elif value is not _MISSING:
            delattr(cls, name)
        found.append(field)
    return found


def _values_reader(names: list[str]) -> Callable[[Any], Any]:
    """Return a function that returns the values of some attributes, which are compared."""
    return operator.attrgetter(*names) if names else lambda _instance: ()


def _constructor(cls: type, declaration: _Declaration) -> Callable[..., None]:
    """Return the function ``__init__`` of a data class.

    Its code is generated, so that a call takes no longer than that of a function that was written
    for the class, and so that it checks its arguments in the same way.
    """
    values: dict[str, Any] = {"_missing": _MISSING, "_set": object.__setattr__}
    parameters = ["self", *(["*"] if declaration.options["kw_only"] and declaration.fields else [])]
    body = []
    for field in declaration.fields:
        name = field.name
        value = name
        if field.is_required:
            parameters.append(name)
        elif field.default_factory is _MISSING:
            values[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            values[f"_create_{name}"] = field.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_create_{name}() if {name} is _missing else {name}"
        if declaration.options["frozen"]:
            body.append(f"    _set(self, {name!r}, {value})")
        else:
            body.append(f"    self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()")
    code = "\n".join([f"def __init__({', '.join(parameters)}):", *(body or ["    pass"])])
    exec(code, values)
    constructor: Callable[..., None] = values["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    constructor.__annotations__ = {**vars(cls).get("__annotations__", {}), "return": "None"}
    constructor.__module__ = cls.__module__
    return constructor


class _Constructor:
    """The method ``__init__`` of a data class, whose code is generated when it is first needed.

    Most commands create instances of only a few of the classes that they import. ``owner`` is the
    data class.
    """

    owner: Any

    def __get__(self, instance: Any, cls: type) -> Any:
        self.owner.__init__ = _constructor(self.owner, self.owner._declaration)
        return self.owner.__init__.__get__(instance, cls)


# --- the functions that all data classes share ---


def _repr(self: Any) -> str:
    declaration = self._declaration
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in declaration.shown_names)
    return f"{type(self).__qualname__}({values})"


def _equals(self: Any, other: object) -> Any:
    read = self._declaration.read_compared
    if type(other) is not type(self):
        return NotImplemented
    return read(self) == read(other)


def _hash(self: Any) -> int:
    return hash(self._declaration.read_compared(self))


def _refuse_assignment(self: Any, name: str, _value: Any) -> None:  # noqa: ARG001
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:  # noqa: ARG001
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self._declaration.names]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self._declaration.names, state, strict=True):
        object.__setattr__(self, name, value)


class _LibraryAttribute:
    """An attribute that `dataclasses` gives its classes.

    When it is first read, the value that it would have replaces it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, _instance: Any, cls: type) -> Any:
        for base in cls.__mro__:
            if "_declaration" in vars(base):
                library_class = _library_class(base)
                for name in _LIBRARY_ATTRIBUTES:
                    setattr(base, name, getattr(library_class, name))
                return getattr(base, self.name)
        raise AttributeError(self.name)


def _library_class(cls: type) -> type:
    """Return the class of `dataclasses` with the same fields and options as a class of ours."""
    import dataclasses

    declaration: _Declaration = vars(cls)["_declaration"]
    members: dict[str, Any] = {
        "__annotations__": vars(cls)["__annotations__"],
        "__module__": cls.__module__,
        "__doc__": "",
    }
    for field in declaration.fields:
        given = {"default": field.default, "default_factory": field.default_factory}
        defaults = {key: value for key, value in given.items() if value is not _MISSING}
        members[field.name] = dataclasses.field(
            **defaults, compare=field.compare, repr=field.repr, metadata=field.metadata
        )
    return dataclasses.dataclass(**declaration.options)(type(cls.__name__, (), members))


def _create(cls: type, options: Mapping[str, bool]) -> type:
    """Return the data class for a class that declares fields; see `dataclasses.dataclass`."""
    declaration = _Declaration(cls, options)
    constructor = _Constructor()
    is_compared = options["eq"]
    members: dict[str, Any] = {
        "_declaration": declaration,
        "__init__": constructor,
        **{name: _LibraryAttribute(name) for name in _LIBRARY_ATTRIBUTES},
        "__match_args__": () if options["kw_only"] else declaration.names,
    }
    # `copy.replace` of Python 3.13 calls the method __replace__.
    shared: dict[str, Any] = {"__repr__": _repr, "__replace__": replace}
    if is_compared:
        shared["__eq__"] = _equals
    if is_compared and options["frozen"]:
        shared["__hash__"] = _hash
    if options["frozen"]:
        members |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
    members = {**{key: value for key, value in shared.items() if key not in vars(cls)}, **members}
    if not options["slots"]:
        constructor.owner = cls
        for name, value in members.items():
            setattr(cls, name, value)
        if is_compared and not options["frozen"] and "__hash__" not in vars(cls):
            cls.__hash__ = None  # type: ignore[assignment]
        return cls
    if options["frozen"]:
        members |= {"__getstate__": _get_state, "__setstate__": _set_state}
    # A class cannot get slots after its creation.
    unneeded = {*declaration.names, "__dict__", "__weakref__"}
    own = {name: value for name, value in vars(cls).items() if name not in unneeded}
    created = type(cls)(
        cls.__name__, cls.__bases__, {**own, **members, "__slots__": declaration.names}
    )
    created.__qualname__ = cls.__qualname__
    constructor.owner = created
    return created


def _decorate(
    cls: type | None = None,
    /,
    *,
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    options = {"eq": eq, "frozen": frozen, "slots": slots, "kw_only": kw_only}
    if cls is None:
        return lambda decorated: _create(decorated, options)
    return _create(cls, options)


# Type checkers treat the classes as those of `dataclasses`.
if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
else:
    dataclass = _decorate
    field = DataField
