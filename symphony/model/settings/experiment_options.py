"""The table of experiment-level options, in Python and in files."""

from __future__ import annotations

from symphony.model.settings import validators
from symphony.model.settings.code import CODE
from symphony.model.settings.value_types import (
    DURATION,
    ENV,
    ENV_FILES,
    FILES,
    FLAG,
    NAMES,
    NONEMPTY_TEXT,
    PORT_RANGE,
    SHELL_LINES,
    STRINGS,
    Field,
    field_table,
    policy_fields,
    policy_type,
)

CONTINUE = "continue"
FAILURE_POLICIES = (CONTINUE, "stop", "restart")
FAILURE_FIELDS = policy_fields(
    FAILURE_POLICIES, "what happens to the other processes when a process has failed"
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
        name="code",
        type=CODE,
        description="The code of every process, of which a launch takes a snapshot: a directory, "
        "such as '.', or {path: ..., include: [...], exclude: [...]}. On Kubernetes and Slurm, the "
        "processes run from a copy of it. start_dir is relative to this directory.",
    ),
    Field(
        name="env",
        type=ENV,
        description="Environment variables of every process. Variables that are set on a group or "
        "a process take precedence.",
    ),
    Field(
        name="env_file",
        type=ENV_FILES,
        description="Files with environment variables of every process, in the dotenv format: a "
        "path or a list of paths. The variables in env take precedence.",
    ),
    Field(
        name="ends_with",
        type=NAMES,
        description="Processes or groups: a name or a list of names. When they have finished, the "
        "experiment has finished, and the other processes are stopped. By default, the experiment "
        "has finished when all processes have finished.",
    ),
    Field(
        name="on_failure",
        type=policy_type(FAILURE_FIELDS, FAILURE_POLICIES, restarting=["restart"]),
        description="What happens to the other processes when a process has failed and is not "
        "restarted by its own restart policy. The default is continue, stop stops them, and "
        "restart stops all processes and starts the experiment again. To limit the restarts, use "
        "{policy: restart, max_restarts: ..., backoff: ...}.",
    ),
    Field(
        name="deadline",
        type=DURATION,
        description="The time after the launch at which all processes are stopped and the "
        "experiment has failed, in seconds or with a unit such as '6h'.",
    ),
    Field(
        name="record_usage",
        type=FLAG,
        description="Record the resource use of each process in the record of the run once a "
        "second, or on Kubernetes when the metrics server has measured it. The default is the "
        "value of record_usage under runs in the configuration, or else false.",
    ),
    Field(
        name="resume",
        type=FLAG,
        description="Let symphony resume start the experiment again after a reboot of the machine, "
        "on local and tmux. symphony install --user-unit runs this command after each boot. The "
        "default is false.",
    ),
    Field(
        name="sbatch_options",
        type=STRINGS,
        description="Further options of sbatch for an experiment that runs as a job of Slurm, such "
        "as ['--mail-type=END'], which take precedence over those that symphony sets.",
    ),
)
