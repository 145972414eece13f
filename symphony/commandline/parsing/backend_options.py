"""The backend that a command line selects, and the options of this backend."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing.arguments import COMMON_OPTIONS, Formatter, NumberOption

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.config import Configuration
    from symphony.hookspecs import BackendInfo, Option

BACKEND_VARIABLE = "SYMPHONY_BACKEND"
# The option of `check` that names backends, and the name that stands for all of them.
TARGET_OPTION = "--target"
ALL_BACKENDS = "all"


class BackendOptions:
    """The options of the backend that a command line selects.

    ``info`` describes this backend. It is None until `load` has found the backend. ``error`` is an
    error of the configuration, which is raised later, so that ``config path`` is still available.
    """

    def __init__(self) -> None:
        self.info: BackendInfo | None = None
        self.error: Exception | None = None
        self._options: tuple[Option, ...] = ()

    def load(
        self, words: Sequence[str], configured: Callable[[], str], *, for_help: bool = False
    ) -> bool:
        """Find the backend that the command line ``words`` requests, or else the configured one.

        ``configured`` returns the name of the latter. If ``for_help`` is true, only the command
        line and SYMPHONY_BACKEND determine the backend, and no configuration file is read. The
        result is false if the backend is not known. A backend that cannot be loaded is reported
        when the cluster is created.
        """
        from symphony.cluster.plugins import find_backend
        from symphony.config import SymphonyConfig
        from symphony.config.configuration import DEFAULT_BACKEND
        from symphony.errors import PluginError, SymphonyError

        typed = selecting_options(words)
        SymphonyConfig().set_command_line(typed)
        self.error = None
        try:
            if for_help:
                variable = os.environ.get(BACKEND_VARIABLE)
                info = find_backend(typed.get("--backend") or variable or DEFAULT_BACKEND)
            else:
                info = find_backend(configured())
        except PluginError:
            return False
        except SymphonyError as exc:
            self.error = exc
            return False
        self.info = info
        self._options = info.options
        return True

    def add_to(self, parser: argparse.ArgumentParser, *, show: bool) -> None:
        """Add the options to a parser, except those that its command already has or cannot use.

        The help describes them if ``show`` is true.
        """
        verb = parser.get_default("verb")
        options = [item for item in self._options if not item.commands or verb in item.commands]
        if not options:
            return
        backend = self.info.name if self.info else ""
        group = parser.add_argument_group(f"{COMMON_OPTIONS}the {backend} backend")
        for option in options:
            taken = {flag: parser._option_string_actions.get(flag) for flag in option.flags}
            flags = [flag for flag, action in taken.items() if action is None]
            for action in taken.values():
                if isinstance(action, NumberOption):
                    action.other_destination = _destination(option)
            if flags:
                _add_option(group, option, flags, option.help if show else argparse.SUPPRESS)

    def given(self, args: argparse.Namespace) -> Iterator[tuple[Option, object]]:
        """Yield the options on the command line, with their values."""
        for option in self._options:
            value = getattr(args, _destination(option), None)
            if value is not None:
                yield option, value

    def refuse(self, args: argparse.Namespace, prog: str) -> None:
        """Raise `UsageError` if options were given, because `create_cluster` has not read them."""
        for option, _ in self.given(args):
            flag = option.flags[-1]
            backend = self.info.name if self.info else "chosen"
            raise UsageError(
                f"{flag} is an option of the {backend} backend, but {prog} creates its "
                "cluster without it (its create_cluster() does not use backend_options); "
                f"remove {flag}"
            )

    def with_flags(self, text: str) -> str:
        """Replace names of options in an error message with flags, ``namespace=`` for example with
        ``--namespace``.
        """
        import re

        for option in self._options:
            text = re.sub(rf"\b{option.name}=(?=[\s,;]|$)", option.flags[-1], text)
        return text


def requested_backend(
    args: argparse.Namespace, read_configuration: Callable[[], Configuration]
) -> tuple[str, str | None]:
    """Return the words that request a backend, and the name of that backend.

    The name is None if the command line requests no backend.
    """
    from symphony.cluster.plugins import find_backend

    if args.backend:
        return f"-b {args.backend}", find_backend(args.backend).name
    configuration = read_configuration()
    profile = args.profile
    if profile and configuration.profile_of("backend") == profile:
        return f"--profile {profile}", find_backend(configuration.backend).name
    return "", None


def refuse_other_backend(cluster: Cluster, typed: str, requested: str | None, prog: str) -> None:
    """Raise `UsageError` if the command line requests a backend other than the cluster's.

    ``typed`` and ``requested`` are the result of `requested_backend`. Without this check, a command
    such as ``delete`` would act on a cluster that was not requested.
    """
    backend = getattr(cluster, "backend", None)
    if requested is None or backend is None or requested == backend:
        return
    raise UsageError(
        f"{typed} requests the {requested} backend, but {prog} uses its own cluster "
        f"on {backend}; remove {typed}"
    )


def selecting_options(words: Sequence[str]) -> dict[str, str]:
    """Return the values of ``-b`` and ``--profile``, which affect how other words are parsed.

    If ``check`` has only one target and no ``-b``, the target acts as ``-b``.
    """
    finder = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False, formatter_class=Formatter
    )
    finder.add_argument("-b", "--backend", dest="--backend")
    finder.add_argument("--profile", dest="--profile")
    finder.add_argument(TARGET_OPTION, dest=TARGET_OPTION, action="append", default=[])
    try:
        found, _ = finder.parse_known_args(words)
    except argparse.ArgumentError:
        # The value of an option is missing. The main parser reports this error.
        return {}
    values = vars(found)
    targets = values.pop(TARGET_OPTION)
    if len(targets) == 1 and targets[0] != ALL_BACKENDS and "," not in targets[0]:
        values["--backend"] = values["--backend"] or targets[0]
    return {option: value for option, value in values.items() if value}


def hints_for_backend_options() -> dict[str, str]:
    """Return a mapping from each option of each backend to a hint that names the backend."""
    from symphony.cluster.plugins import installed_backends

    hints: dict[str, str] = {}
    for info in installed_backends():
        hint = f"; it is an option of the {info.name} backend: add -b {info.name}"
        for option in info.options:
            hints.update(dict.fromkeys(option.flags, hint))
    return hints


def _destination(option: Option) -> str:
    return f"option_{option.name}"


def _add_option(
    group: argparse._ArgumentGroup, option: Option, flags: Sequence[str], text: str
) -> None:
    if option.switch:
        group.add_argument(
            *flags,
            dest=_destination(option),
            action="store_true",
            default=argparse.SUPPRESS,
            help=text,
        )
        return
    group.add_argument(
        *flags,
        dest=_destination(option),
        metavar=option.metavar,
        choices=option.choices or None,
        default=argparse.SUPPRESS,
        help=text,
    )
