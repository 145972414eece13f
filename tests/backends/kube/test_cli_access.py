"""The commands cp, forward, visit, logs, exec and attach on Kubernetes."""

import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from tests.cli import in_process
from tests.cli.terminal import Terminal

from .module_experiment import launched, python, until_succeeded

WEB = """
import http.server
print("up")
handler = http.server.SimpleHTTPRequestHandler
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), handler).serve_forever()
"""


@pytest.fixture(scope="module")
def running(kube_session):
    def build(exp):
        web = python(exp, "web", WEB, start_dir="/tmp")
        web.binds({"inner": 8000}).ready(tcp="inner")
        python(exp, "ended", "print('text', end='')")

    with launched(kube_session, build) as (cluster, name):
        cluster.wait(name, timeout=60, until="ready")
        until_succeeded(cluster, name, "ended")
        cluster.get_log(name, "web")
        yield kube_session, name


@pytest.fixture
def argv(running):
    session, name = running
    options = ["--kubeconfig", str(session.cluster.kubeconfig), "--namespace", name]
    return lambda *words: [sys.executable, "-m", "symphony", "-b", "kube", *options, *words]


@pytest.fixture
def symphony(argv, tmp_path):
    def run(*words, input=""):
        arguments = argv(*words)[3:]
        return in_process.run(arguments, cwd=tmp_path, input=input, timeout=60)

    return run


def test_cp(running, symphony, tmp_path):
    _, name = running
    (tmp_path / "page").write_text("hello")
    assert symphony("cp", name, "page", "web:").returncode == 0
    assert symphony("exec", name, "web", "--", "cat", "/tmp/page").stdout == "hello"
    done = symphony("cp", name, "web:page", "back")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "back").read_text() == "hello"
    done = symphony("cp", name, "web:none", "x")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("words", [["visit", "inner"], ["forward", "web", "8000"]])
def test_port_is_forwarded_until_a_signal(running, argv, words):
    _, name = running
    verb, *rest = words
    with subprocess.Popen(
        argv(verb, name, *rest), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        address = run.stdout.readline().strip()
        url = address if verb == "visit" else f"http://{address}"
        assert url.startswith("http://127.0.0.1:")
        assert urllib.request.urlopen(url, timeout=20).status == 200
        run.send_signal(signal.SIGTERM)
        assert run.communicate(timeout=20) == ("", "forwarding; press Ctrl-C to stop\n")
    assert run.returncode == 130


def test_logs(running, symphony, tmp_path):
    _, name = running
    assert symphony("logs", name, "ended").stdout == "text"
    assert symphony("logs", name, "--save", "kept").stdout == "kept/web.log\nkept/ended.log\n"
    assert (tmp_path / "kept" / "ended.log").read_text() == "text"
    done = symphony("logs", name, "--previous")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no process of experiment" in done.stderr


def test_exec(running, symphony):
    _, name = running
    done = symphony(
        "exec", name, "web", "--", "sh", "-c", "cat; echo err >&2; exit 4", input="some input"
    )
    assert (done.returncode, done.stdout, done.stderr) == (4, "some input", "err\n")
    assert "is not running (succeeded)" in symphony("exec", name, "ended", "--", "true").stderr


def test_ctrl_c_ends_a_command_without_a_terminal(running, argv):
    _, name = running
    words = argv("exec", name, "web", "--", "sh", "-c", "echo up; sleep 100")
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout.readline() == b"up\n"
        run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=20)[1] == b"symphony: interrupted\n"
    assert run.returncode == 130


def test_attach_runs_a_shell_in_the_container(running, argv, tmp_path):
    _, name = running
    terminal = Terminal(argv("attach", name, "web"), env=dict(os.environ), cwd=tmp_path, width=80)
    try:
        terminal.press("echo $SYMPHONY_ROLE-$((40 + 2)); exit\r")
        terminal.expect("web-42")
        assert terminal.finish() == 0
    finally:
        terminal.close()
