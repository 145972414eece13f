"""Start, stop and inspect the cluster as a whole."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devcluster import (
    access,
    api,
    build,
    cgroups,
    control,
    controllers,
    engine,
    images,
    network,
    node,
    objects,
    registry,
)
from devcluster.network import IPV4, IPV6, Addresses
from devcluster.node import NODES, REGISTRY, Node
from devcluster.parts import Parts
from devcluster.paths import Paths
from machines import network as bridge
from machines import processes, record, sandbox
from machines.console import Console, ToolError
from machines.processes import Process, wait_for
from machines.record import Record
from machines.sandbox import Machine

_PACKAGE = Path(__file__).parent


def healthy(paths: Paths, running: Record) -> bool:
    """Return whether the start was completed, every process that was started is still running, and
    the API server is ready.
    """
    everything = [*running.daemons.values(), *(machine.init for machine in running.machines)]
    if not running.complete or not all(processes.alive(process) for process in everything):
        return False
    try:
        return api.connect(paths.kubeconfig("admin")).ready()
    except OSError:
        return False


def version(paths: Paths) -> str:
    """Return the version of Kubernetes that a healthy cluster runs, such as `1.37.2`."""
    answer = api.connect(paths.kubeconfig("admin")).call("GET", "/version")
    return str(answer["gitVersion"]).removeprefix("v")


def addresses_of(running: Record) -> Addresses:
    """Return the addresses of a running cluster."""
    return IPV6 if ":" in running.machine("control").address else IPV4


def start(paths: Paths, parts: Parts, addresses: Addresses, console: Console) -> None:
    """Start everything. Return when a Pod has succeeded on every node and docker is ready."""
    Starter(paths, parts, addresses, console).start()


def stop(paths: Paths) -> bool:
    """Stop everything that was started and remove the state, except for the logs. Return whether
    anything had been started.
    """
    running = record.load(paths.record)
    if running is None:  # If a bridge or a control group exists, it belongs to another cluster.
        return False
    for machine in running.machines:
        processes.stop(machine.init)
    for daemon in running.daemons.values():
        # The recorded process only waits for the daemon, which has just exited with its machine.
        processes.stop(daemon)
    bridge.remove_bridge(network.BRIDGE)
    cgroups.remove()
    if paths.run.exists():
        shutil.rmtree(paths.run)
    paths.record.unlink()
    return True


def refresh_image(running: Record, parts: Parts, *, pool: ThreadPoolExecutor, run: Path) -> None:
    """Load a new test image into containerd on every node, the registry and the docker daemon."""
    ctr = parts.programs["ctr"]
    futures = [pool.submit(_import, running.machine(n.name), ctr, parts.image) for n in NODES]
    futures.append(pool.submit(_add_to_docker, running.machine("engine"), run, parts.image))
    _results(futures)


def load_image(paths: Paths, running: Record, node_name: str, archive: Path) -> None:
    """Load an image, which is a file in the `docker save` format, into containerd on a node."""
    ctr = build.program(paths.cache, "ctr")
    _import(running.machine(node_name), ctr, archive)


@dataclass(slots=True)
class Starter:
    """The startup of the cluster, step by step."""

    paths: Paths
    parts: Parts
    addresses: Addresses
    console: Console

    def start(self) -> None:
        """Start everything. Parts that do not depend on each other are started in parallel."""
        started, image = Record(path=self.paths.record), self.parts.image
        ctr = self.parts.programs["ctr"]
        started.begin()
        self.paths.run.mkdir(mode=0o700)
        with self.console.step("machines and network"):
            self._machines(started)
        with ThreadPoolExecutor() as pool:
            runtimes = {n.name: pool.submit(self._runtime, started, n) for n in NODES}
            docker = pool.submit(self._engine, started)
            with self.console.step("control plane"):
                self._control_plane(started)
            applied = pool.submit(self._apply_controllers, started)
            with self.console.step("nodes"):
                self._join(started, runtimes)
                imports = [pool.submit(_import, started.machine(n.name), ctr, image) for n in NODES]
                machine = started.machine(controllers.NODE)
                for each in self.parts.controllers:
                    imports.append(pool.submit(_import, machine, ctr, each.image))
                self._wait_for_nodes(started)
            with self.console.step("images on the nodes"):
                _results(imports)
            with self.console.step("a Pod on every node"):
                self._probe()
            with self.console.step("JobSet and Kueue"):
                self._start_controllers(applied.result())
            with self.console.step("docker and registry"):
                docker.result()
        started.finish(image=str(self.parts.image), timings=self.console.timings)

    def _machines(self, started: Record) -> None:
        bridge.make_bridge(network.BRIDGE, self.addresses.host)
        controller = self._boot(started, "control", self.addresses.control, own_network=True)
        self._boot(started, "engine", self.addresses.host, own_network=False)
        self._plug(controller)
        joined = {}
        for each in NODES:
            cgroups.make(each.cgroup)
            lib = self._lib(each)
            lib.mkdir(parents=True)
            node.prepare(each, lib, self.parts.programs, self.addresses)
            log = self.paths.run / each.name / "log"
            log.mkdir()
            machine = self._boot(
                started,
                each.name,
                self.addresses.machine(each.number),
                own_network=True,
                mounts={"/var/lib": lib, "/var/log": log},
            )
            self._plug(machine)
            joined[each.number] = machine
        network.join(self.addresses, joined, [controller])

    def _boot(
        self,
        started: Record,
        name: str,
        address: str,
        *,
        own_network: bool,
        mounts: dict[str, Path] | None = None,
    ) -> Machine:
        script = sandbox.setup(
            packages=[self.parts.packages],
            mounts=mounts or {},
            hostname=name,
            init=[str(self.parts.programs["pause"])],
        )
        log = self.paths.logs / f"{name}.log"
        return started.add_machine(
            sandbox.boot(name, script=script, address=address, own_network=own_network, log=log)
        )

    def _plug(self, machine: Machine) -> None:
        bridge.plug(machine, bridge=network.BRIDGE, cable=f"sdc-{machine.name}")

    def _lib(self, each: Node) -> Path:
        return self.paths.run / each.name / "lib"

    def _daemon(self, started: Record, machine: Machine, name: str, argv: list[str]) -> Process:
        log = self.paths.logs / f"{name}.log"
        # All daemons are Go programs. By default, they collect garbage whenever their memory has
        # doubled, which costs the API server a sixth of its CPU time.
        command = machine.inside(["env", "GOGC=400", *argv])
        return started.add_daemon(processes.spawn(name, command, log=log))

    def _control_plane(self, started: Record) -> None:
        """Start the control plane and create the initial objects of a new cluster."""
        machine, run = started.machine("control"), self.paths.run
        certificates, key = run / "certificates", run / "service-account.key"
        certificates.mkdir()
        log = self.paths.logs / "control.log"
        features = build.features(self.parts.kubernetes)
        etcd_command = control.etcd(self.parts.programs, run / "etcd")
        etcd = self._daemon(started, machine, "etcd", etcd_command)
        processes.run(machine.inside(["openssl", "genrsa", "-out", str(key), "2048"]), log=log)
        tokens = access.make_tokens([n.name for n in NODES])
        access.write_private(run / "tokens.csv", access.token_file(tokens))
        server = self._daemon(
            started,
            machine,
            "kube-apiserver",
            control.api_server(
                self.parts.programs,
                certificates=certificates,
                tokens=run / "tokens.csv",
                service_account_key=key,
                addresses=self.addresses,
                gates=features["gates"],
                apis=features["apis"],
            ),
        )
        authority = certificates / "apiserver.crt"
        needs, server_log = (etcd, server), self.paths.logs / "kube-apiserver.log"
        # The API server writes the key only after the certificate is complete.
        made = (certificates / "apiserver.key").exists
        wait_for(made, "its certificate", seconds=60, needs=needs, log=server_log)
        self._write_kubeconfigs(authority.read_bytes(), tokens)
        client = api.connect(self.paths.kubeconfig("admin"))
        wait_for(client.ready, "the API server", seconds=60, needs=needs, log=server_log)
        system = partial(client.find, "/api/v1/namespaces/kube-system")
        wait_for(system, "namespace kube-system", seconds=30, needs=needs, log=server_log)
        for collection, content in objects.initial(self.addresses):
            client.call("POST", collection, content)
        self._controllers(started, machine, authority=authority, key=key)

    def _write_kubeconfigs(self, authority: bytes, tokens: dict[str, str]) -> None:
        self.paths.kubeconfigs.mkdir(mode=0o700)
        for user, token in tokens.items():
            server = control.server_url(self.addresses)
            text = access.kubeconfig(server=server, authority=authority, user=user, token=token)
            access.write_private(self.paths.kubeconfig(user), text)

    def _controllers(
        self, started: Record, machine: Machine, *, authority: Path, key: Path
    ) -> None:
        programs, config = self.parts.programs, self.paths.kubeconfig
        gates = build.features(self.parts.kubernetes)["gates"]
        manager = control.controller_manager(
            programs,
            kubeconfig=config("system:kube-controller-manager"),
            authority=authority,
            service_account_key=key,
            gates=gates,
        )
        scheduler = control.scheduler(
            programs, kubeconfig=config("system:kube-scheduler"), gates=gates
        )
        resolver = ["/usr/bin/env", f"PYTHONPATH={_PACKAGE.parent}", "/usr/bin/python3", "-m"]
        resolver += ["devcluster.dns", self.addresses.control, str(config(access.DNS_USER))]
        self._daemon(started, machine, "kube-controller-manager", manager)
        self._daemon(started, machine, "kube-scheduler", scheduler)
        self._daemon(started, machine, "dns", resolver)

    def _runtime(self, started: Record, each: Node) -> None:
        """Start containerd on a node, and load the pause image, which every Pod needs."""
        machine, name = started.machine(each.name), f"{each.name}-containerd"
        daemon = self._daemon(started, machine, name, node.containerd(self.parts.programs))
        wait_for(
            partial(_succeeds, machine, *_ctr(self.parts.programs["ctr"]), "version"),
            name,
            seconds=30,
            needs=[daemon],
            log=self.paths.logs / f"{name}.log",
        )
        _import(machine, self.parts.programs["ctr"], self.parts.pause_image)

    def _join(self, started: Record, runtimes: dict[str, Future[None]]) -> None:
        """Start kubelet and kube-proxy on every node."""
        programs = self.parts.programs
        gates = build.features(self.parts.kubernetes)["gates"]
        for each in NODES:
            node.admit(
                self._lib(each),
                kubelet=self.paths.kubeconfig(f"system:node:{each.name}").read_text(),
                proxy=self.paths.kubeconfig("system:kube-proxy").read_text(),
            )
            runtimes[each.name].result()
            machine = started.machine(each.name)
            kubelet = node.kubelet(programs, each, self.addresses, gates=gates)
            self._daemon(started, machine, f"{each.name}-kubelet", kubelet)
            proxy = node.proxy(programs, each, self.addresses)
            self._daemon(started, machine, f"{each.name}-kube-proxy", proxy)

    def _wait_for_nodes(self, started: Record) -> None:
        """Wait for each node to become ready, and then advertise its GPUs, if it has any."""
        client = api.connect(self.paths.kubeconfig("admin"))
        for each in NODES:
            kubelet, path = f"{each.name}-kubelet", f"/api/v1/nodes/{each.name}"
            wait_for(
                partial(_node_ready, client, path),
                f"node {each.name}",
                seconds=120,
                needs=[started.daemons[kubelet]],
                log=self.paths.logs / f"{kubelet}.log",
            )
            if each.gpus:
                patch = objects.gpu_patch(each.gpus)
                client.call("PATCH", f"{path}/status", patch, api.JSON_PATCH)

    def _probe(self) -> None:
        """Run a Pod on every node, to check the scheduler, DNS, a Service and the test image."""
        client = api.connect(self.paths.kubeconfig("admin"))
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_for(partial(client.find, account), "the default service account", seconds=30)
        pods = "/api/v1/namespaces/default/pods"
        probes = [objects.probe_pod(each.name) for each in NODES]
        for probe in probes:
            client.call("POST", pods, probe)
        for probe in probes:
            path = f"{pods}/{probe['metadata']['name']}"
            name = f"Pod {probe['metadata']['name']}"
            wait_for(partial(_pod_succeeded, client, path), name, seconds=90)
            client.call("DELETE", path, {"gracePeriodSeconds": 0})

    def _apply_controllers(self, started: Record) -> Path:
        """Create the objects of JobSet and Kueue, except for the webhook configurations. Return the
        file with those.

        They follow when the controllers run. Until then, no Pod could be created.
        """
        machine, log = started.machine("control"), self.paths.logs / "controllers.log"
        directory = self.paths.run / "controllers"
        directory.mkdir(mode=0o700)
        objects_text, webhooks_text = [], []
        for each in self.parts.controllers:
            processes.run(machine.inside(controllers.make_certificate(directory, each)), log=log)
            certificate = (directory / f"{each.name}.crt").read_bytes()
            key = (directory / f"{each.name}.key").read_bytes()
            first, later = each.certified(certificate, key)
            objects_text.append(first)
            webhooks_text.append(later)
        access.write_private(directory / "objects.yaml", "\n---\n".join(objects_text))
        access.write_private(directory / "webhooks.yaml", "\n---\n".join(webhooks_text))
        self._kubectl_apply(directory / "objects.yaml")
        return directory / "webhooks.yaml"

    def _kubectl_apply(self, manifests: Path) -> None:
        kubectl = [str(self.parts.programs["kubectl"])]
        kubectl.append(f"--kubeconfig={self.paths.kubeconfig('admin')}")
        apply = ["apply", "--server-side", "--validate=false", f"--filename={manifests}"]
        processes.run([*kubectl, *apply], log=self.paths.logs / "controllers.log")

    def _start_controllers(self, webhooks: Path) -> None:
        """Wait until JobSet and Kueue are ready, switch on their webhooks and create the queue."""
        client = api.connect(self.paths.kubeconfig("admin"))
        for each in self.parts.controllers:
            ready = partial(_deployment_ready, client, each.deployment)
            wait_for(ready, f"the controller of {each.name}", seconds=120)
        self._kubectl_apply(webhooks)
        for collection, content in objects.queues():
            create = partial(_created, client, collection, content)
            wait_for(create, "the webhooks of Kueue", seconds=30)

    def _engine(self, started: Record) -> None:
        """Start the registry and the docker daemon, and add the test image as a base for builds."""
        machine, run = started.machine("engine"), self.paths.run
        registries = [
            self._daemon(started, machine, name, engine.registry(run, name, self.addresses))
            for name in engine.LISTENERS
        ]
        daemon = self._daemon(started, machine, "dockerd", engine.docker_daemon(run))
        client = _docker(run)
        wait_for(
            partial(_succeeds, machine, *client, "version"),
            "dockerd",
            seconds=60,
            needs=[daemon],
            log=self.paths.logs / "dockerd.log",
        )
        wait_for(
            partial(registry.answers, REGISTRY),
            "the registry",
            seconds=60,
            needs=registries,
            log=self.paths.logs / f"{engine.LISTENERS[0]}.log",
        )
        _add_to_docker(machine, run, self.parts.image)


def _ctr(program: Path) -> tuple[str, ...]:
    return (str(program), "--address", node.CONTAINERD_SOCKET, "--namespace", "k8s.io")


def _docker(run: Path) -> tuple[str, ...]:
    return ("/usr/bin/docker", "--host", f"unix://{engine.docker_socket(run)}")


def _import(machine: Machine, ctr: Path, image: Path) -> None:
    _command(machine, *_ctr(ctr), "images", "import", str(image))


def _add_to_docker(machine: Machine, run: Path, image: Path) -> None:
    """Upload the test image to the registry, and let the docker daemon pull it from there.

    The daemon then knows that the registry holds the layers. If it had loaded the image from a
    file, the first push of an image that is built from it would compress and upload them, which
    takes minutes on a busy machine.
    """
    repository, _, tag = images.NAME.rpartition("/")[2].partition(":")
    registry.upload(REGISTRY, image, repository=repository, tag=tag)
    pulled = f"{REGISTRY}/{repository}:{tag}"
    _command(machine, *_docker(run), "pull", "--quiet", pulled)
    _command(machine, *_docker(run), "tag", pulled, images.NAME)


def _succeeds(machine: Machine, *argv: str) -> bool:
    return subprocess.run(machine.inside(argv), capture_output=True).returncode == 0


def _command(machine: Machine, *argv: str) -> None:
    done = subprocess.run(machine.inside(argv), capture_output=True, text=True)
    if done.returncode:
        error = done.stderr.strip()[-300:]
        raise ToolError(f"'{' '.join(argv)[:120]}' failed on {machine.name}: {error}")


def _node_ready(client: api.Client, path: str) -> bool:
    return objects.is_ready(client.find(path) or {})


def _deployment_ready(client: api.Client, path: str) -> bool:
    deployment = client.find(path) or {}
    return bool(deployment.get("status", {}).get("availableReplicas"))


def _created(client: api.Client, collection: str, content: objects.Object) -> bool:
    """Create an object, and return whether its webhooks have answered."""
    try:
        client.call("POST", collection, content)
    except api.ApiError as exc:
        if exc.status != 500:  # The API server has not reached a webhook yet.
            raise
        return False
    return True


def _pod_succeeded(client: api.Client, path: str) -> bool:
    phase: str = client.call("GET", path)["status"]["phase"]
    return phase == "Succeeded"


def _results(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result()
