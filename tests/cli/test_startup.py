"""What frequent commands and supervisors import and read before they start their work."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.conftest import FOREVER, TIMEOUT, Program

HEAVY = {
    "symphony.model.experiment.experiment",
    "yaml",
    "psutil",
    "asyncio",
    "multiprocessing",
    "http.client",
    "unittest",
    "kubernetes",
    "libtmux",
    "zmq",
}
# These take longer than everything that `ls` and `ps` do themselves, and each of their imports by
# one of the modules that the two commands need is easy to miss.
HEAVY_FOR_STATUSES = {"dataclasses", "inspect", "pkgutil", "pluggy", "signal", "textwrap"}


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A program with a running experiment, which no test changes."""
    made = Program(tmp_path_factory.mktemp("launched"))
    made.launch("rl", {"a": FOREVER})
    yield made
    made.cluster.delete("rl")


@pytest.mark.without_coverage
@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (("ls",), HEAVY_FOR_STATUSES),
        (("ps", "rl"), HEAVY_FOR_STATUSES),
        (("-b", "local", "ps", "rl"), HEAVY_FOR_STATUSES),
        (("logs", "rl"), set()),
        (("--version",), {"pluggy"}),
    ],
)
def test_frequent_commands_import_no_heavy_module(
    launched: Program, words: tuple[str, ...], heavy: set[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "symphony", *words],
        env=launched.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "symphony.commandline" in imported
    assert imported & (HEAVY | heavy | {"lzma", "shutil", "socket"}) == set()


# The modules with which the kube backend launches and changes experiments.
ONLY_FOR_A_LAUNCH = {
    "symphony.code",
    "symphony.commandline.commands.job_options",
    "symphony.model.experiment.experiment",
    "symphony.plan.resolve",
    "symphony_kube.api.credentials.credential_plugin",
    "symphony_kube.lifecycle.launch",
}
KUBECONFIG = """
current-context: c
contexts: [{{name: c, context: {{cluster: c}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
"""


@pytest.mark.without_coverage
def test_ps_on_kubernetes_imports_nothing_for_a_launch(program: Program) -> None:
    # The server answers with 404, because it is not an API server.
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig = program.directory / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(port=server.server_port))
        options = ("-b", "kube", "--kubeconfig", str(kubeconfig))
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "symphony", *options, "ps", "rl"],
            env=program.env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        server.shutdown()
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "symphony_kube.status.experiments" in imported
    assert imported & ONLY_FOR_A_LAUNCH == set()


# The modules that `up` needs only if the experiment changes, has secrets, or is not valid.
ONLY_FOR_A_CHANGE = {
    "hashlib",
    "symphony.supervised.preflight",
    "symphony.supervised.resources.gpus",
    "symphony.supervised.resources.leases",
    "symphony.supervised.resources.unsupervised",
    "symphony.supervised.supervisor",
    "symphony.model.document.other_formats.known_keys",
}


@pytest.mark.without_coverage
def test_up_imports_nothing_for_a_change_if_there_is_no_change(program: Program) -> None:
    file = program.file("rl", {"a": {"cmd": FOREVER, "binds": "service"}})
    program.ok("launch", file)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "symphony", "up", str(file)],
        env=program.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "symphony.supervised.user_requests.request_change" in imported
    assert imported & ONLY_FOR_A_CHANGE == set()


# A launch waits for the supervisor's imports. These modules are needed only by some experiments, or
# only after the launch.
NOT_FOR_A_START = HEAVY | {
    "shutil",
    "tempfile",
    "traceback",
    "symphony.model",
    "symphony.line_search",
    "symphony.supervised.read.log_files",
    "symphony.supervised.access.exec_command",
    "symphony.supervised.processes.membership",
    "symphony.supervised.processes.tree",
}
IMPORTS_OF_A_SUPERVISOR = f"""
import sys
sys.path[:] = {sys.path}
from symphony.supervised.supervisor import handover
handover._import_modules("symphony.supervised.supervisor.local_children:LocalChildren")
print(*sys.modules)
"""


@pytest.mark.without_coverage
def test_supervisor_imports_only_what_it_needs_to_start_processes() -> None:
    command = [sys.executable, "-I", "-S", "-c", IMPORTS_OF_A_SUPERVISOR]
    imported = set(subprocess.check_output(command, text=True, timeout=TIMEOUT).split())
    assert "symphony.supervised.supervisor.supervisor" in imported
    assert imported & NOT_FOR_A_START == set()


OPENED_ENTRY_POINTS = """
import sys
def report(event, arguments):
    if event == "open" and str(arguments[0]).endswith("entry_points.txt"):
        print("opened", arguments[0])
sys.addaudithook(report)
from symphony.commandline import main
sys.argv = ["symphony", "ls", "-b", "local"]
sys.exit(main())
"""


@pytest.mark.without_coverage
def test_command_reads_the_entry_points_of_each_distribution_once(program: Program) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPENED_ENTRY_POINTS],
        env=program.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    opened = Counter(line for line in done.stdout.splitlines() if line.startswith("opened"))
    assert set(opened.values()) == {1}
