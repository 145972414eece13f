"""The table of experiment-level options, in Python and in files."""

from __future__ import annotations

from symphony.model import validators
from symphony.model.value_types import (
    ENV,
    FILES,
    NONEMPTY_TEXT,
    PORT_RANGE,
    SHELL_LINES,
    Field,
    field_table,
)

EXPERIMENT_OPTIONS = field_table(
    Field(
        name="secrets",
        type=FILES,
        description="Files that every process can read in SYMPHONY_SECRETS_DIR.",
    ),
    Field(
        name="port_range",
        type=PORT_RANGE,
        description="The first and last port of the range from which symphony chooses ports; "
        f"the default is {list(validators.DEFAULT_PORT_RANGE)}.",
    ),
    Field(
        name="preamble_cmds",
        type=SHELL_LINES,
        description="Shell lines that run before every process.",
    ),
    Field(
        name="start_dir",
        type=NONEMPTY_TEXT,
        description="The directory in which every process starts.",
    ),
    Field(
        name="env",
        type=ENV,
        description="Environment variables of every process. Variables that are set on a group or "
        "a process take precedence.",
    ),
)
