"""The command line that the commands see: `Line`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from symphony.commandline.parsing.dispatch import METHOD_CHECKS, CommandLine
from symphony.support.argument_checks import check_methods

if TYPE_CHECKING:
    from pathlib import Path

    from symphony.cluster import Cluster

# The keys of an experiment file that options of the command line with the same names replace.
_REPLACEABLE_KEYS = ("name", "ends_with", "on_failure", "deadline")


class Line(CommandLine):
    """The command line on which a command works.

    ``cluster`` is the cluster on which the command works. ``loaded_file`` is the experiment file
    that the command has loaded, or None.
    """

    loaded_file: Path | None = None
    _noted = ""

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster on which the command works.

        If the command takes an experiment, it is the cluster with this experiment; see
        `cluster_with`. Otherwise, it is the cluster that the user selects.
        """
        if not hasattr(self.args, "experiment"):
            return self.selected_cluster
        return self.cluster_with(self.args.experiment)

    def cluster_with(self, experiment: str | None, *, exact: bool | None = None) -> Cluster:
        """Return the cluster with an experiment, which can be on another backend than the selected
        one if the user names no backend.

        Unless ``exact`` is set, ``experiment`` can be the beginning of a name; by default, this is
        possible if the command changes nothing. If ``experiment`` is None, or if no backend has it,
        the result is the selected cluster. Raises `UsageError` if several backends have it.
        """
        if self.names_backend or experiment is None:
            return self.selected_cluster
        from symphony.commandline.commands.lookup import find_backend

        exact = self.changes_something if exact is None else exact
        return find_backend.find_cluster(self.selected_cluster, experiment, exact=exact)

    def print_note_once(self, text: str) -> None:
        """Print a message, unless it is the same as the previous one. ``up --watch`` repeats it."""
        from symphony.commandline.output.terminal import print_note

        if text != self._noted:
            self._noted = text
            print_note(text)

    def explained_error(self, error: BaseException) -> BaseException:
        """Return an error about the experiment that was loaded with its position in the file."""
        from symphony.commandline.commands.experiment_file.file_positions import with_position
        from symphony.errors import LaunchFailed, SpecError, SymphonyError

        if self.loaded_file is None or not isinstance(error, (SpecError, LaunchFailed)):
            return error
        if not error.path:
            return error
        key = error.path[0]
        if key in _REPLACEABLE_KEYS and getattr(self.args, key, None):
            # The error is in an option of the command line.
            return error
        try:
            return with_position(error, self.loaded_file)
        except (SymphonyError, OSError):
            # The file was changed or removed in the meantime.
            return error


check_methods(Line, METHOD_CHECKS)
