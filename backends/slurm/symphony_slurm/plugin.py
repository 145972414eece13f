"""The plug-in that registers the Slurm backend."""

from symphony.hookspecs import CAPABILITIES, STATE_DIR, BackendInfo, Option

BACKEND = BackendInfo(
    name="slurm",
    summary="one Slurm job, with an agent on each of its nodes",
    load="symphony_slurm.cluster:SlurmCluster",
    capabilities=frozenset(CAPABILITIES) - {"debug"},
    options=(
        Option(name="partition", flags=("--partition",), metavar="NAME", help="Slurm's partition"),
        Option(name="account", flags=("--account",), metavar="NAME", help="Slurm's account"),
        Option(name="qos", flags=("--qos",), metavar="NAME", help="Slurm's quality of service"),
        Option(
            name="time",
            flags=("--time-limit",),
            metavar="TIME",
            help="the time limit of the job",
        ),
        Option(name="nodes", flags=("--nodes",), metavar="N", help="the number of nodes"),
        Option(
            name="gpu_type",
            flags=("--gpu-type",),
            metavar="TYPE",
            help="Slurm's name for the type of the GPUs, such as a100",
        ),
        Option(
            name="exclusive",
            flags=("--exclusive",),
            switch=True,
            help="use nodes that no other job uses",
        ),
        Option(
            name="requeue",
            flags=("--requeue",),
            metavar="N",
            help="start again at most N times after a preemption or a failed node",
        ),
        STATE_DIR,
    ),
    experiments="symphony.supervised.record.directory:experiment_names",
)
