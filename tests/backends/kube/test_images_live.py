"""Images that are built by a real engine, pushed to a real registry and run by real Pods."""

import http.server
import json
import os
import subprocess
import tarfile
import threading
import urllib.error
import urllib.request
from io import BytesIO

import pytest

from symphony import BackendError
from symphony.addons import DockerBuilder, clean_images
from symphony.addons.docker import images
from symphony.addons.docker.context import build_context
from symphony.addons.docker.detect_engine import find
from symphony.addons.docker.subprocesses import step
from symphony.model.experiment.images import ContextEntry
from tests.cli import in_process

from .conftest import managed_objects

SHOW = "for name in ('one', 'two'): print(open(f'/{name}/text').read(), end='')"


# Images of a test have its namespace in a label, by which they are distinct from those of other
# tests.
LABEL = "symphony.test"


@pytest.fixture
def engine(kube_cluster, tmp_path, monkeypatch):
    """The engine of the cluster as the only one. The images of the test are removed."""
    found = kube_cluster.engine
    # The registry keeps the images, whose names contain that of the namespace.
    kube_cluster.is_discarded.set()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").symlink_to(found.client)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("DOCKER_HOST", found.host)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for variable in ("SYMPHONY_CONTAINER_ENGINE", "DOCKER_BUILDKIT", "SYMPHONY_BACKEND"):
        monkeypatch.delenv(variable, raising=False)
    yield found
    clean_images(f"*{kube_cluster.namespace}*", force=True)
    unnamed = found.docker(
        "image", "ls", "--quiet", "--filter", f"label={LABEL}={kube_cluster.namespace}"
    ).split()
    if unnamed:
        found.docker("image", "rm", "--force", *set(unnamed))


@pytest.fixture(params=["docker", pytest.param("docker-classic", marks=pytest.mark.long)])
def builders(request, engine, monkeypatch):
    """BuildKit, and the classic builder."""
    monkeypatch.setenv("SYMPHONY_CONTAINER_ENGINE", request.param)
    return engine


@pytest.fixture
def repository(kube_cluster, engine):
    return f"{engine.registry}/{kube_cluster.namespace}"


@pytest.fixture
def label(kube_cluster):
    return ["--label", f"{LABEL}={kube_cluster.namespace}"]


def tags(engine, repository):
    """Return the tags of a repository, or None if the registry does not know it."""
    name = repository.partition("/")[2]
    try:
        with urllib.request.urlopen(
            f"http://{engine.registry}/v2/{name}/tags/list", timeout=10
        ) as answer:
            return json.load(answer)["tags"]
    except urllib.error.HTTPError as exc:
        exc.close()
        return None if exc.code == 404 else f"an answer of {exc.code}"


def layers(engine, repository, tag):
    """Return the digests of the layers of an image in the registry."""
    name = repository.rpartition("/")[2]
    request = urllib.request.Request(
        f"http://{engine.registry}/v2/{name}/manifests/{tag}",
        headers={"Accept": "application/vnd.docker.distribution.manifest.v2+json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return [layer["digest"] for layer in json.load(answer)["layers"]]


def directories(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / "src" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name / "text").write_text(text)
    return [{"name": name, "path": str(tmp_path / "src" / name)} for name in files]


@pytest.fixture
def project(kube_cluster, tmp_path, repository, label):
    """An experiment of one process that prints files of its image, built from two directories."""
    directories(tmp_path, one="first\n", two="second\n")
    (tmp_path / "src" / "Dockerfile").write_text(
        f"FROM {kube_cluster.image}\nCOPY one /one\nCOPY two /two\n"
    )
    described = {
        "name": "exp",
        "images": {
            repository: {
                "context_directories": [{"name": name, "path": name} for name in ("one", "two")],
                "build_options": label,
            }
        },
        "processes": {"show": {"container_image": repository, "command": ["python3", "-c", SHOW]}},
    }
    (tmp_path / "src" / "exp.yml").write_text(json.dumps(described))
    return tmp_path / "src"


@pytest.fixture
def symphony(kube_cluster, project):
    options = [
        "-b",
        "kube",
        "--kubeconfig",
        str(kube_cluster.kubeconfig),
        "--namespace",
        kube_cluster.namespace,
    ]

    def run(*words, command="launch"):
        return in_process.run([command, *words, *options], cwd=project, timeout=100)

    return run


def test_image_is_built_pushed_and_run(kube_cluster, engine, repository, project, symphony):
    dry = symphony("exp.yml", "--build", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert dry.stderr.startswith(
        f"symphony: would build {repository}:exp from {project}/Dockerfile with one ("
    )
    assert f"image: '{repository}:exp'" in dry.stdout
    assert tags(engine, repository) is None

    done = symphony("exp.yml", "--build", "--follow")
    assert (done.returncode, done.stdout) == (0, "first\nsecond\n"), done.stderr
    assert tags(engine, repository) == ["exp"]
    # To compress and upload the layers of the base again would take minutes on a busy machine.
    base, _, tag = kube_cluster.image.partition(":")
    base_layers = layers(engine, base, tag)
    assert layers(engine, repository, "exp")[: len(base_layers)] == base_layers
    (pod,) = kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
    image = pod["spec"]["containers"][0]["image"]
    assert image.startswith(f"{repository}@sha256:")
    assert f"pushed {repository}:exp as {image.partition('@')[2]}" in done.stderr

    (project / "two" / "text").write_text("changed\n")
    again = symphony("exp.yml", "--build", "--follow")
    assert (again.returncode, again.stdout) == (0, "first\nchanged\n"), again.stderr


def test_running_experiment_is_refused_before_a_build_and_changed_after_one(
    kube_cluster, engine, repository, symphony, shared, monkeypatch
):
    live = shared.new_experiment("exp")
    live.new_process(
        "p", container_image=kube_cluster.image, command=["sleep", "60"]
    ).node_selector("no", "node")
    shared.launch(live)
    done = symphony("exp.yml", "--build")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "experiment 'exp' is running and was not changed" in done.stderr
    assert tags(engine, repository) is None

    # The build itself takes a long time.
    monkeypatch.setattr(images, "build_images", lambda experiment, **_: experiment)
    changed = symphony("exp.yml", "--build", command="up")
    assert changed.returncode == 0, changed.stderr
    assert [process.name for process in shared.describe_experiment("exp")] == ["show"]


def test_failed_build_launches_nothing(kube_cluster, builders, repository, project, symphony):
    (project / "Dockerfile").write_text(f"FROM {kube_cluster.image}\nCOPY three /three\n")
    done = symphony("exp.yml", "--build")
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"symphony: error: building {project}/Dockerfile with docker-")
    assert "failed with exit code 1" in last
    assert "three" in last
    assert tags(builders, repository) is None
    assert builders.docker("image", "ls", "--quiet", repository) == ""
    assert managed_objects(kube_cluster) == {}


class Refusing(http.server.BaseHTTPRequestHandler):
    """A registry that rejects every push."""

    def answer(self, status, **error):
        body = json.dumps({"errors": [error]} if error else {}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        self.answer(200)

    def do_HEAD(self):
        self.answer(404)

    def do_POST(self):
        self.answer(403, code="DENIED", message="pushes are not allowed")

    def log_message(self, *_):
        pass


def test_failed_step_is_reported_and_leaves_no_container(
    builders, kube_cluster, tmp_path, label, capfd
):
    """Containers of other tests are not counted."""
    coloured = f"printf '\\033[31mred\\033[0m\\n'; echo of {label[1]} >&2; exit 3"
    (tmp_path / "Dockerfile").write_text(f"FROM {kube_cluster.image}\nRUN {coloured}\n")
    options = [*label, "--network=none"]
    with pytest.raises(BackendError, match="failed with exit code") as caught:
        DockerBuilder(
            tmp_path / "Dockerfile", directories(tmp_path, one="1"), tmp_path, build_options=options
        ).build()
    message = str(caught.value)
    assert "red" in message
    assert f"of {label[1]}" in message
    for text in (message, capfd.readouterr().err):
        assert "DOCKER_BUILDKIT" not in text
    assert "\x1b" not in message
    left = builders.docker("ps", "--all", "--no-trunc", "--format", "{{.Command}}")
    assert kube_cluster.namespace not in left


@pytest.fixture
def refusing():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_rejected_push_launches_nothing(
    kube_cluster, engine, repository, project, symphony, refusing
):
    text = (project / "exp.yml").read_text().replace(engine.registry, refusing)
    (project / "exp.yml").write_text(text)
    done = symphony("exp.yml", "--build")
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"symphony: error: pushing {refusing}/{kube_cluster.namespace}:exp failed with exit code 1:"
    )
    assert "pushes are not allowed" in last or "denied" in last
    assert managed_objects(kube_cluster) == {}


def content(engine, image, directory):
    """Return the files in a directory of an image, with their contents."""
    container = engine.docker("create", image, "nothing").strip()
    try:
        command = [engine.client, "--host", engine.host, "export", container]
        exported = subprocess.run(command, capture_output=True, check=True).stdout
    finally:
        engine.docker("rm", container)
    with tarfile.open(fileobj=BytesIO(exported)) as tar:
        members = [
            member
            for member in tar
            if member.name.startswith(f"{directory}/") and not member.isdir()
        ]
        return {
            member.name.partition("/")[2]: tar.extractfile(member).read().decode()
            if member.isreg()
            else member.linkname
            for member in members
        }


IGNORED = """
# Typical rules of a research project.
**/*.pyc
data
!data/small
/build
logs/**
*.md
!README*.md
README-secret.md
**/cache
src/[a-c]*.tmp
src/?.log
src/**/deep
*.txt
"""
FILES = [
    "a.pyc", "lib/b.pyc", "lib/x/c.pyc", "keep.py", "data/big", "data/small/s",
    "data/small/t/u", "build/o", "lib/build/o", "logs/l", "logs/m/n", "x.md", "README.md",
    "README-a.md", "README-secret.md", "lib/x.md", "cache/c", "lib/cache/c", "src/a.tmp",
    "src/d.tmp", "src/abc.tmp", "src/a.log", "src/ab.log", "src/deep", "src/x/deep",
    "src/x/y/deep/z", "notes.txt", "lib/notes.txt", ".hidden", "lib/.dockerignore",
]  # fmt: skip


@pytest.mark.long
def test_dockerignore_has_the_same_meaning_as_in_the_engine(
    builders, kube_cluster, tmp_path, label
):
    source = tmp_path / "source"
    for name in FILES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "link").symlink_to("keep.py")
    (source / ".dockerignore").write_text(IGNORED)
    (source / "Dockerfile").write_text("FROM scratch\nCOPY . /c\n")
    name = f"{kube_cluster.namespace}:ignored"
    with build_context([ContextEntry(name="app", path=str(source))], tmp_path / "temp") as context:
        app = context.directory / "app"
        found = {
            str(path.relative_to(app)): str(path.readlink())
            if path.is_symlink()
            else path.read_text()
            for path in app.rglob("*")
            if path.is_symlink() or not path.is_dir()
        }
    real = find()
    step(
        "it",
        real.build_command(source, source / "Dockerfile", tmp_path / "answer", name, label),
        real.env,
    )
    assert content(builders, name, "c") == found
    assert {"keep.py", "data/small/t/u", "README-a.md", "src/ab.log", "link"} <= set(found)


def test_removed_file_is_not_in_the_next_image(builders, kube_cluster, tmp_path, label):
    entries = directories(tmp_path, one="1", two="2")
    settings = {"temp_directory": tmp_path / "temp", "build_options": label}
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /c\n")
    name = f"{kube_cluster.namespace}:removed"
    lines = []
    built = DockerBuilder(tmp_path / "Dockerfile", entries, **settings, output=lines.append).build(
        name
    )
    assert content(builders, name, "c") == {"one/text": "1", "two/text": "2"}
    assert built == builders.docker("image", "inspect", "--format", "{{.Id}}", name).strip()
    assert len(lines) > 3
    directories(tmp_path, two="changed")
    DockerBuilder(tmp_path / "Dockerfile", entries[1:], **settings, verbose=False).build(name)
    assert content(builders, name, "c") == {"two/text": "changed"}


def test_clean_images(engine, kube_cluster, tmp_path, label):
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /c\n")
    settings = {"temp_directory": tmp_path / "temp", "build_options": label, "verbose": False}
    builder = DockerBuilder(tmp_path / "Dockerfile", directories(tmp_path, one="1"), **settings)
    builder.build()
    names = [
        builder.tag(f"{kube_cluster.namespace}-{name}", tag)
        for name, tag in (("a", "1"), ("a", "2"), ("b", "1"))
    ]
    with pytest.raises(BackendError, match="is not the image that was built: tag it first"):
        builder.push(f"{engine.registry}/{kube_cluster.namespace}", "1")
    asked = []
    assert (
        clean_images(
            f"{kube_cluster.namespace}-a:*", confirm=lambda found: asked.extend(found)
        ).removed
        == ()
    )
    assert sorted(asked) == names[:2]
    directories(tmp_path, one="other")
    builder.build()
    used = builder.tag(f"{kube_cluster.namespace}-used", "1")
    container = engine.docker("create", used, "nothing").strip()
    try:
        done = clean_images([f"{kube_cluster.namespace}-*:1"], confirm=lambda _: True)
        assert (sorted(done.removed), list(done.failed)) == ([names[0], names[2]], [used])
        assert "conflict: unable to remove repository reference" in done.failed[used]
    finally:
        engine.docker("rm", container)
    assert set(clean_images(f"{kube_cluster.namespace}-*", force=True).removed) == {names[1], used}
