"""Start, stop and inspect a Slurm cluster: a head, a login machine and four nodes.

Each machine has its own network, processes, mounts and host name.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from devslurm import config, packages
from devslurm.config import HEAD, LOGIN, NODES, USERS, Settings
from devslurm.paths import Paths
from machines import network, processes, record, sandbox
from machines.console import Console, RequirementError, ToolError
from machines.processes import wait_for
from machines.record import Record
from machines.sandbox import Machine

START_SECONDS = 60
_REAP = Path(sandbox.__file__).with_name("reap.py")
_CGROUPS = Path("/sys/fs/cgroup")
# The directory of Slurm in the hierarchy of cgroup v2.
_SLICE = "system.slice"
_GPU_MAJOR = 240
# The bridge and the network of each version, so that several clusters can run at the same time.
_NUMBERS = {version: number for number, version in enumerate(packages.SUITES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `up`.

    ``accounting`` starts a database with accounts and limits, which Slurm then enforces.
    ``mounts`` gives each machine its own mount of the shared directory, over which neither inotify
    nor flock reaches the other machines, as with NFS. ``visible`` contains paths that the users of
    the cluster can reach although a directory above them is private.
    """

    version: str
    cgroups: bool = False
    mounts: bool = False
    accounting: bool = False
    visible: tuple[Path, ...] = ()
    extra: tuple[str, ...] = ()


def bridge(version: str) -> str:
    """Return the name of the bridge of a cluster."""
    return f"symphonyslurm{_NUMBERS[version]}"


def healthy(running: Record) -> bool:
    """Return whether the start was completed and everything that was started is still running."""
    everything = [*running.daemons.values(), *(machine.init for machine in running.machines)]
    return running.complete and all(processes.alive(process) for process in everything)


def stop(paths: Paths, version: str) -> bool:
    """Stop everything that was started, and remove the state. Return whether there was anything."""
    running = record.load(paths.record)
    if running is None:
        return False
    for machine in running.machines:
        processes.stop(machine.init)
    for daemon in running.daemons.values():
        processes.stop(daemon)
    network.remove_bridge(bridge(version))
    _remove_cgroups(paths)
    if paths.run.exists():
        shutil.rmtree(paths.run)
    paths.record.unlink()
    return True


def _remove_cgroups(paths: Paths) -> None:
    """Remove the control groups that slurmd has created for the nodes of a stopped cluster.

    The nodes of all clusters have the same control groups. If another cluster uses them, they
    remain: it might be about to put a job into one that is still empty, and Slurm takes a node on
    which a job cannot be set up out of service.

    With cgroup v1, each hierarchy contains some. With cgroup v2, they are in a directory of their
    own.
    """
    if not _uses_cgroups(paths) or any(map(_uses_cgroups, paths.of_other_versions())):
        return
    for parent in _CGROUPS.iterdir():
        if parent.is_symlink():
            continue
        for node in NODES:
            name = f"{node}_slurmstepd.scope" if parent.name == _SLICE else f"slurm_{node}"
            for directory, _, _ in os.walk(parent / name, topdown=False):
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()


def _uses_cgroups(paths: Paths) -> bool:
    """Return whether control groups contain the processes of a cluster that was started."""
    try:
        settings = (paths.run / "cgroup.conf").read_text()
    except FileNotFoundError:
        return False
    return config.CONTAINS_PROCESSES in settings


@dataclass(slots=True)
class Starter:
    """The start of a cluster, step by step."""

    paths: Paths
    options: Options
    console: Console

    def start(self) -> None:
        """Start everything. Return when all nodes are idle."""
        self.paths.state.mkdir(parents=True, exist_ok=True)
        if network.bridge_exists(bridge(self.options.version)):
            raise RequirementError(
                f"bridge {bridge(self.options.version)} already exists, from a cluster with "
                "another XDG_STATE_HOME: run 'devslurm down' with that setting"
            )
        self.paths.cache.mkdir(parents=True, exist_ok=True)
        with self.console.step("packages"):
            root = self._packages(self.options.version)
            database_root = root
            if self.options.accounting:
                database_root = self._packages(packages.DATABASE_VERSION)
        started = Record(path=self.paths.record)
        started.begin()
        settings = self._write(root)
        with self.console.step("machines"):
            self._machines(started, settings, root)
        with self.console.step("daemons"):
            self._daemons(started, settings, root, database_root)
        started.finish(timings=self.console.timings)

    def _packages(self, version: str) -> Path:
        return packages.prepare(
            self.paths.cache,
            version,
            accounting=self.options.accounting,
            log=self.paths.cache / "apt.log",
            console=self.console,
        )

    def _write(self, root: Path) -> Settings:
        """Write all files of the cluster, and return its settings."""
        run = self.paths.run
        number = _NUMBERS[self.options.version]
        settings = Settings(
            run=run,
            network=f"10.242.{number}",
            plugins=packages.plugin_directory(root),
            version=self.options.version,
            cgroups=self.options.cgroups,
            accounting=self.options.accounting,
            extra=self.options.extra,
        )
        directories = ("dev", "etc", "home", "logs", f"{HEAD}/state", LOGIN)
        for name in (*directories, *(f"{node}/spool" for node in NODES)):
            (run / name).mkdir(parents=True)
        for user, uid in USERS.items():
            home = run / "home" / user
            home.mkdir()
            os.chown(home, uid, uid)
        self.paths.shared.mkdir()
        self.paths.shared.chmod(0o1777)
        for index in range(config.GPUS):
            device = run / "dev" / f"gpu{index}"
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(_GPU_MAJOR, index))
            device.chmod(0o666)
        key = run / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        path = f"{root}/usr/bin:{root}/usr/sbin:$PATH"
        files = {
            "slurm.conf": config.slurm_conf(settings),
            "cgroup.conf": config.cgroup_conf(settings),
            "gres.conf": config.gres_conf(run),
            "etc/passwd": config.passwd(run),
            "etc/group": config.group(),
            "etc/hosts": config.hosts(settings),
            "etc/nsswitch.conf": config.NSSWITCH,
            "env": f"export SLURM_CONF={run}/slurm.conf PATH={path}\n",
        }
        for name, text in files.items():
            (run / name).write_text(text)
        if self.options.accounting:
            database = run / "slurmdbd.conf"
            database.touch(mode=0o600)  # slurmdbd refuses a file that others can read
            database.write_text(config.slurmdbd_conf(settings))
        return settings

    def _machines(self, started: Record, settings: Settings, root: Path) -> None:
        own_bridge = bridge(self.options.version)
        network.make_bridge(own_bridge, f"{settings.network}.1")
        with self._small_disk():
            for name in (HEAD, LOGIN, *NODES):
                machine = started.add_machine(self._boot(name, settings, root))
                cable = f"{own_bridge[8:]}{config.ADDRESS_BYTES[name]}"
                network.plug(machine, bridge=own_bridge, cable=cable)

    @contextlib.contextmanager
    def _small_disk(self) -> Iterator[None]:
        """Mount a small file system that the machines share, for tests of a full disk.

        A new machine has its own copy of the mount, so the host does not need it afterwards.
        """
        disk = self.paths.small_disk
        disk.mkdir()
        options = f"size={config.SMALL_DISK_BYTES},mode=1777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", disk], check=True)

    def _boot(self, name: str, settings: Settings, root: Path) -> Machine:
        run = self.paths.run
        extra = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm\n"
        for directory in sandbox.private_directories(self.options.visible):
            extra += sandbox.make_public(directory)
        if self.options.mounts:
            shared = shlex.quote(str(self.paths.shared))
            # Programs hold the directory of the host open, so it can be mounted over itself.
            extra += f"{root}/usr/bin/bindfs {shared} {shared} >/dev/null\n"
        files = ("passwd", "group", "hosts", "nsswitch.conf")
        script = sandbox.setup(
            packages=[],
            mounts={f"/etc/{file}": run / "etc" / file for file in files},
            hostname=name,
            init=["/usr/bin/python3", "-I", "-S", str(_REAP)],
            extra=extra,
        )
        return sandbox.boot(
            name,
            script=script,
            address=settings.address(name),
            own_network=True,
            log=run / "logs" / f"{name}.log",
        )

    def _daemons(
        self, started: Record, settings: Settings, root: Path, database_root: Path
    ) -> None:
        run = self.paths.run
        head = started.machine(HEAD)
        munged = [
            str(root / "usr/sbin/munged"),
            "--force",
            "--foreground",
            f"--key-file={run}/munge.key",
            f"--socket={run}/munge.socket",
            f"--pid-file={run}/{HEAD}/munged.pid",
            f"--log-file={run}/logs/munged.log",
            f"--seed-file={run}/{HEAD}/munged.seed",
            "--num-threads=4",
        ]
        self._daemon(started, head, "munged", munged)
        wait_for((run / "munge.socket").is_socket, "munged", seconds=START_SECONDS)
        if self.options.accounting:
            self._start_accounting(started, settings, database_root)
        start_controller(self.paths, started)
        for name in NODES:
            start_node(self.paths, started, name)
        wait_for(
            lambda: self._idle_nodes() == len(NODES),
            "the nodes",
            seconds=START_SECONDS,
            needs=list(started.daemons.values()),
            log=run / "logs/slurmctld.log",
        )

    def _start_accounting(self, started: Record, settings: Settings, database_root: Path) -> None:
        """Start the database and slurmdbd, and create the accounts and limits."""
        run = self.paths.run
        head = started.machine(HEAD)
        (run / HEAD / "mysql").mkdir()
        database = [
            str(database_root / "usr/sbin/mariadbd"),
            *config.database_options(database_root, settings),
        ]
        self._create_system_tables(head, database, database_root)
        self._daemon(started, head, "mariadbd", database)
        accepts = ["bash", "-c", f": </dev/tcp/127.0.0.1/{config.DATABASE_PORT}"]
        wait_for(
            lambda: subprocess.run(head.inside(accepts), capture_output=True).returncode == 0,
            "the database",
            seconds=START_SECONDS,
            needs=list(started.daemons.values()),
            log=run / "logs/mariadbd.out",
        )
        argv = ["env", *_environment(self.paths), "slurmdbd", "-D"]
        self._daemon(started, head, "slurmdbd", argv)
        wait_for(
            lambda: command(self.paths, ["sacctmgr", "-n", "show", "cluster"]).returncode == 0,
            "slurmdbd",
            seconds=START_SECONDS,
            needs=list(started.daemons.values()),
            log=run / "logs/slurmdbd.log",
        )
        for line in config.ACCOUNTS:
            done = command(self.paths, ["sacctmgr", "-i", *line.split()])
            if done.returncode != 0:
                raise ToolError(f"sacctmgr {line}: {done.stdout}{done.stderr}")

    def _create_system_tables(
        self, head: Machine, database: list[str], database_root: Path
    ) -> None:
        """Create the tables in which the database keeps the stored procedures of slurmdbd."""
        tables = database_root / "usr/share/mysql/mysql_system_tables.sql"
        statements = f"CREATE DATABASE mysql;\nUSE mysql;\n{tables.read_text()}"
        log = self.paths.run / "logs/mariadbd-bootstrap.log"
        with log.open("wb") as output:
            done = subprocess.run(
                head.inside([*database, "--bootstrap"]),
                input=statements.encode(),
                stdout=output,
                stderr=output,
                check=False,
            )
        if done.returncode != 0:
            raise ToolError(f"the database could not be created: {processes.tail(log, 5)}")

    def _daemon(self, started: Record, machine: Machine, name: str, argv: list[str]) -> None:
        log = self.paths.run / "logs" / f"{name}.out"
        started.add_daemon(processes.spawn(name, machine.inside(argv), log=log))

    def _idle_nodes(self) -> int:
        done = command(self.paths, ["sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N"])
        return len(done.stdout.split())


def start_controller(paths: Paths, started: Record) -> None:
    """Start slurmctld. Return when it accepts connections."""
    argv = ["env", *_environment(paths), "slurmctld", "-D"]
    log = paths.run / "logs/slurmctld.out"
    head = started.machine(HEAD)
    daemon = started.add_daemon(processes.spawn("slurmctld", head.inside(argv), log=log))
    wait_for(
        lambda: command(paths, ["scontrol", "ping"]).returncode == 0,
        "slurmctld",
        seconds=START_SECONDS,
        needs=[daemon],
        log=paths.run / "logs/slurmctld.log",
    )


def start_node(paths: Paths, started: Record, name: str) -> None:
    """Start the slurmd of a node."""
    argv = ["env", *_environment(paths), "slurmd", "-D", "-N", name]
    argv += ["-d", str(_root(paths) / "usr/sbin/slurmstepd")]
    log = paths.run / "logs" / f"{name}-slurmd.out"
    machine = started.machine(name)
    started.add_daemon(processes.spawn(f"slurmd-{name}", machine.inside(argv), log=log))


def _environment(paths: Paths) -> list[str]:
    root = _root(paths)
    path = f"{root}/usr/sbin:{root}/usr/bin:{os.environ['PATH']}"
    return [f"SLURM_CONF={paths.run}/slurm.conf", f"PATH={path}"]


def _root(paths: Paths) -> Path:
    """Return the directory into which Slurm was unpacked, which the configuration names."""
    line = next(
        line
        for line in (paths.run / "slurm.conf").read_text().splitlines()
        if line.startswith("PluginDir=")
    )
    return Path(line.partition("=")[2]).parents[3]


def command(paths: Paths, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program of Slurm on the host, and return its result."""
    return subprocess.run(
        ["env", *_environment(paths), *argv], capture_output=True, text=True, check=False
    )


def inside(
    paths: Paths, running: Record, machine: str, argv: Sequence[str], user: str | None
) -> list[str]:
    """Return the command line that runs ``argv`` in a machine, as a user of the cluster or as root.

    The working directory is kept.
    """
    found = running.machine(machine)
    as_user: list[str] = []
    variables = _environment(paths)
    if user is not None:
        uid = str(USERS[user])
        as_user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"]
        home = paths.run / "home" / user
        variables += [f"HOME={home}", f"USER={user}", f"LOGNAME={user}"]
    enter = found.inside([])[:-1]
    return [*enter, f"--wd={Path.cwd()}", "--", *as_user, "env", *variables, *argv]
