"""The table of the options of an experiment itself, in Python and in a file."""

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
        description="The first and the last port that symphony may choose; "
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
        description="The directory that every process starts in.",
    ),
    Field(
        name="env",
        type=ENV,
        description="Variables of every process. Those of groups and processes take precedence.",
    ),
)
