"""The configuration of Slurm, and the users and host names that its machines see."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NODES = ("n1", "n2", "n3", "n4")
CPUS, MEMORY_MIB, GPUS = 8, 4000, 2
GPU_TYPE = "toy"
SMALL_DISK_BYTES = 4 * 1024 * 1024
# The port of the database, in the machine of slurmctld.
DATABASE_PORT = 3306
# The commands of sacctmgr that define who may use what. With accounting, all users have the account
# ``research`` by default. Only bob may use ``closed``, and nobody the QOS ``reserved``.
ACCOUNTS = (
    "add cluster symphony",
    "add qos short MaxWall=00:05:00 Flags=DenyOnLimit",
    "add qos reserved",
    "add account research qos=normal,short",
    "add account closed",
    "add user root,alice,bob account=research",
    "add user bob account=closed",
)
# The users of the cluster, with the numbers of the user and the group.
USERS = {"alice": 4001, "bob": 4002}
HEAD, LOGIN = "head", "login"
# The line of cgroup.conf of a cluster whose processes are in control groups. Slurm then uses the
# version that the machine has.
CONTAINS_PROCESSES = "CgroupPlugin=autodetect"
# The last byte of the address of each machine. The host has the address 1.
ADDRESS_BYTES = {HEAD: 10, LOGIN: 9, **{name: 11 + index for index, name in enumerate(NODES)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The parts of the configuration that differ between clusters.

    * ``run`` is the directory of the cluster, and ``network`` the beginning of its addresses, such
      as ``10.242.0``.
    * ``plugins`` is the directory of Slurm's plugins, and ``version`` the version of Slurm.
    * ``cgroups`` states that control groups constrain the devices and contain the processes.
    * ``accounting`` states that slurmdbd knows accounts and limits, and that they are enforced.
    * ``extra`` contains further lines of slurm.conf.
    """

    run: Path
    network: str
    plugins: Path
    version: str
    cgroups: bool = False
    accounting: bool = False
    extra: Sequence[str] = ()

    def address(self, machine: str) -> str:
        """Return the address of a machine."""
        return f"{self.network}.{ADDRESS_BYTES[machine]}"


def slurm_conf(settings: Settings) -> str:
    """Return the contents of slurm.conf."""
    run = settings.run
    lines = [
        "ClusterName=symphony",
        f"SlurmctldHost={HEAD}({settings.address(HEAD)})",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={run}/munge.socket",
        f"PluginDir={settings.plugins}",
        f"StateSaveLocation={run}/{HEAD}/state",
        f"SlurmctldPidFile={run}/{HEAD}/slurmctld.pid",
        f"SlurmctldLogFile={run}/logs/slurmctld.log",
        f"SlurmdPidFile={run}/%n/slurmd.pid",
        f"SlurmdLogFile={run}/logs/%n-slurmd.log",
        f"SlurmdSpoolDir={run}/%n/spool",
        "SlurmdParameters=config_overrides",
        f"ProctrackType=proctrack/{'cgroup' if settings.cgroups else 'linuxproc'}",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=5",
        # A process without CAP_SYS_RESOURCE cannot raise limits.
        "PropagateResourceLimits=NONE",
        "MpiDefault=none",
        "GresTypes=gpu",
        "ReturnToService=2",
        "SchedulerParameters="
        "batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1",
        "MinJobAge=300",
        "SlurmdTimeout=10",
        "KillWait=5",
        "DefMemPerCPU=100",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={run}/{HEAD}/jobcomp.txt",
        *_accounting_lines(settings),
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
    ]
    if settings.cgroups:
        lines.append("TaskPlugin=task/cgroup")
    for name in NODES:
        lines.append(
            f"NodeName={name} NodeAddr={settings.address(name)} CPUs={CPUS} "
            f"RealMemory={MEMORY_MIB} Gres=gpu:{GPU_TYPE}:{GPUS} Feature={name} State=UNKNOWN"
        )
    lines += [
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1",
        "PartitionName=short Nodes=ALL MaxTime=10 State=UP PriorityTier=1",
        "PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9",
        *settings.extra,
    ]
    return "\n".join(lines) + "\n"


def _accounting_lines(settings: Settings) -> list[str]:
    if not settings.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={settings.address(HEAD)}",
        f"AccountingStoragePass={settings.run}/munge.socket",
        "AccountingStorageEnforce=associations,limits,qos",
    ]


def slurmdbd_conf(settings: Settings) -> str:
    """Return the contents of slurmdbd.conf, for a database in the machine of slurmctld."""
    run = settings.run
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={run}/munge.socket",
        f"DbdHost={HEAD}",
        f"DbdAddr={settings.address(HEAD)}",
        "SlurmUser=root",
        f"PluginDir={settings.plugins}",
        f"PidFile={run}/{HEAD}/slurmdbd.pid",
        f"LogFile={run}/logs/slurmdbd.log",
        "StorageType=accounting_storage/mysql",
        "StorageHost=127.0.0.1",
        f"StoragePort={DATABASE_PORT}",
        "StorageUser=root",
        "StorageLoc=slurm",
    ]
    return "\n".join(lines) + "\n"


def database_options(root: Path, settings: Settings) -> list[str]:
    """Return the options of mariadbd, which accepts connections only from its own machine."""
    directory = settings.run / HEAD / "mysql"
    return [
        "--no-defaults",
        "--user=root",
        f"--basedir={root}/usr",
        f"--lc-messages-dir={root}/usr/share/mysql",
        f"--datadir={directory}",
        f"--socket={directory}.sock",
        f"--pid-file={directory}.pid",
        "--bind-address=127.0.0.1",
        f"--port={DATABASE_PORT}",
        "--skip-networking=0",
        # Users and their passwords would have to be created first.
        "--skip-grant-tables",
        "--skip-log-bin",
        # What slurmdbd recommends, and a small database.
        "--innodb-lock-wait-timeout=900",
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=16M",
        "--innodb-flush-log-at-trx-commit=0",
    ]


def cgroup_conf(settings: Settings) -> str:
    """Return the contents of cgroup.conf."""
    if settings.cgroups:
        lines = [
            CONTAINS_PROCESSES,
            "CgroupMountpoint=/sys/fs/cgroup",
            # With cgroup v2, Slurm would ask systemd for its directories, which runs nowhere here.
            "IgnoreSystemd=yes",
            "ConstrainDevices=yes",
            "ConstrainRAMSpace=no",
            "ConstrainCores=no",
        ]
        return "\n".join(lines) + "\n"
    is_new = tuple(int(part) for part in settings.version.split(".")) >= (23, 11)
    return f"CgroupPlugin={'disabled' if is_new else 'cgroup/v1'}\n"


def gres_conf(run: Path) -> str:
    """Return the contents of gres.conf. The GPUs are device files without a driver."""
    device_files = f"{run}/dev/gpu[0-{GPUS - 1}]"
    return f"Name=gpu Type={GPU_TYPE} File={device_files} Flags=nvidia_gpu_env\n"


def passwd(run: Path) -> str:
    """Return the users of the machines: those of the host, and the users of the cluster."""
    own = [f"{name}:x:{uid}:{uid}::{run}/home/{name}:/bin/bash" for name, uid in USERS.items()]
    return Path("/etc/passwd").read_text() + "\n".join(own) + "\n"


def group() -> str:
    """Return the groups of the machines."""
    own = [f"{name}:x:{gid}:" for name, gid in USERS.items()]
    return Path("/etc/group").read_text() + "\n".join(own) + "\n"


def hosts(settings: Settings) -> str:
    """Return the host names of the machines.

    The name of the host is included, because slurmctld waits for 10 seconds if it cannot resolve
    the name of a host from which a job is submitted.
    """
    lines = ["127.0.0.1 localhost", f"{settings.network}.1 {os.uname().nodename}"]
    lines += [f"{settings.address(name)} {name}" for name in ADDRESS_BYTES]
    return "\n".join(lines) + "\n"


# A name server cannot be reached from the machines, and slurmctld 24.11 would wait for it.
NSSWITCH = "".join(
    f"{database}: files\n"
    for database in ("passwd", "group", "shadow", "hosts", "services", "protocols")
)
