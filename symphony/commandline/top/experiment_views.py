"""The views of the tabs of an experiment: its processes, its topology and its logs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from symphony.cluster import Cluster
from symphony.cluster.matching import find_names
from symphony.commandline.output.tables import Column
from symphony.commandline.output.usage_columns import UsageTable, insert_before_last
from symphony.commandline.output.views import PROCESS_COLUMNS, process_row
from symphony.commandline.top.lines import LogLines
from symphony.commandline.top.row_table import RowTable, TableRow
from symphony.commandline.top.signs import STATE_STYLES, Signs
from symphony.commandline.top.text_view import TextView
from symphony.commandline.top.texts import cell, contains
from symphony.drawing.text_tree import tree_rows
from symphony.errors import NotFound
from symphony.plan.topology import Topology, of_status
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony.support.escapes import escape
from symphony.usage import ExperimentUsage
from symphony.views.experiment_model import ExperimentModel, worst_state
from symphony.views.feed import OutputFeed

_TREE_COLUMNS = (
    Column("PROCESSES AND SERVICES", flexible=True, least=20, prose=True),
    Column("STATE", flexible=True, least=10, prose=True),
)


class ProcessTable(RowTable):
    """The processes of an experiment.

    ``marked`` contains the names of the processes that the user has marked. Only the rows that
    contain the text ``filter`` are shown.
    """

    def __init__(self, signs: Signs, *, id: str) -> None:
        super().__init__(styled="STATE", mark=signs.mark, id=id)
        self._signs = signs
        self.marked: set[str] = set()
        self.filter = ""

    def show_model(self, model: ExperimentModel) -> None:
        """Show the present state. The caller holds the lock of the model."""
        status = model.status
        processes = model.rows()
        usage = UsageTable(_latest_usage(model))
        self.marked &= {process.name for process in processes}
        now = 0.0 if status is None else status.now()
        rows = [self._row(process, usage, now) for process in processes]
        self.empty_text = "reading ..." if status is None else "no processes"
        if self.filter:
            rows = [row for row in rows if contains(" ".join(row.cells), self.filter)]
            self.empty_text = f"no process contains {self.filter!r}"
        self.show(insert_before_last(PROCESS_COLUMNS, usage.columns), rows)

    def _row(self, process: ProcessStatus, usage: UsageTable, now: float) -> TableRow:
        cells = insert_before_last(process_row(process, now), usage.cells(process.name))
        state = "failed" if process.failed else process.displayed_state
        return TableRow(
            key=process.name,
            cells=[cell(value) for value in cells],
            sign=self._signs.states.get(state, " "),
            style=STATE_STYLES.get(state, ""),
            is_marked=process.name in self.marked,
        )


class TopologyTable(RowTable):
    """The processes and services of an experiment as a tree."""

    def __init__(self, signs: Signs, *, id: str) -> None:
        super().__init__(styled="STATE", mark=signs.mark, id=id)
        self._signs = signs
        # The node or the group of each row.
        self._owners: list[str] = []

    def show_model(self, model: ExperimentModel) -> None:
        """Show the present state. The caller holds the lock of the model."""
        topology = _drawn_topology(model)
        states = {process.name: process.displayed_state for process in model.rows()}
        self.empty_text = "reading ..."
        tree = [] if topology is None else tree_rows(topology, states, self._signs.tree)
        nodes = {} if topology is None else {node.key: node for node in topology.nodes}
        self._owners = [row.owner for row in tree]
        rows = []
        for index, row in enumerate(tree):
            processes = nodes[row.owner].processes if row.owner in nodes else ()
            state = worst_state([states[name] for name in processes if name in states])
            rows.append(
                TableRow(
                    key=str(index),
                    cells=[escape(row.text), row.state],
                    sign=self._signs.states[state] if row.state else "",
                    style=STATE_STYLES[state] if row.state else "",
                )
            )
        self.show(_TREE_COLUMNS, rows)

    def selected(self, model: ExperimentModel) -> tuple[str, ...] | None:
        """Return the processes of the node or the group with the cursor.

        The caller holds the lock of the model.
        """
        key = self.cursor_key
        if key is None or int(key) >= len(self._owners):
            return None
        owner = self._owners[int(key)]
        topology = _drawn_topology(model)
        for node in () if topology is None else topology.nodes:
            if node.key == owner:
                return node.processes
        return (owner,)


class FollowedLogs(TextView):
    """The logs of some processes.

    ``selection`` contains the names and patterns of the processes, or is None for all.
    """

    def __init__(
        self, cluster: Cluster, experiment: str, on_change: Callable[[], None], *, id: str
    ) -> None:
        super().__init__(LogLines((), on_change), id=id)
        self._cluster = cluster
        self._experiment = experiment
        self._on_change = on_change
        self._feed: OutputFeed | None = None
        self.selection: tuple[str, ...] | None = None

    @property
    def is_followed(self) -> bool:
        """True after `follow` has been called."""
        return self._feed is not None

    def follow(self, selection: tuple[str, ...] | None, status: ExperimentStatus | None) -> None:
        """Follow the logs of processes from now on."""
        self.close()
        names: Sequence[str] = selection or ()
        if status is not None:
            # A change can have removed a process that was selected.
            with contextlib.suppress(NotFound):
                names = find_names(status, selection)
        self.selection = selection
        lines = LogLines(names, self._on_change)
        self._feed = OutputFeed(self._cluster, self._experiment, selection, lines.receive)
        self._feed.start()
        self.show(lines)

    def close(self) -> None:
        """Stop following the logs."""
        if self._feed is not None:
            self._feed.close()


def _latest_usage(model: ExperimentModel) -> ExperimentUsage:
    """Return the latest samples of the running processes."""
    histories = model.usage
    latest = [
        histories[process.name].latest
        for process in model.rows()
        if process.state is State.RUNNING and process.name in histories
    ]
    return ExperimentUsage(at=0.0, processes=tuple(filter(None, latest)))


def _drawn_topology(model: ExperimentModel) -> Topology | None:
    """Return the topology. If the backend knows none, it contains only the processes."""
    drawn = model.drawn_topology()
    if drawn is None and model.status is not None:
        return of_status(model.status)
    return drawn
