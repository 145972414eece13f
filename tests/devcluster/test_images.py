import hashlib
import io
import json
import tarfile
import zipfile

import pytest

from devcluster import images
from machines.console import RequirementError


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "thing-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing/__init__.py", "answer = 42\n")
        archive.writestr(
            "thing-1.dist-info/entry_points.txt",
            "[console_scripts]\nthing = thing.cli:main\n\n[other.group]\na = b\n",
        )
    return path


def test_wheel_layer_contains_modules_and_commands(wheel):
    with tarfile.open(fileobj=io.BytesIO(images.wheel_layer(wheel))) as tar:
        names = tar.getnames()
        command = tar.extractfile("usr/local/bin/thing").read().decode()
        mode = tar.getmember("usr/local/bin/thing").mode
    assert "usr/local/lib/python3.11/dist-packages/thing/__init__.py" in names
    assert "from thing.cli import main" in command
    assert mode == 0o755


def test_image_lists_the_digests_of_its_layers(tmp_path):
    layers = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.tar"
        with tarfile.open(path, "w") as tar:
            tar.add(__file__, name)
        layers.append(images.Layer(path=path, digest=hashlib.sha256(path.read_bytes()).hexdigest()))
    image = tmp_path / "image.tar"
    images.write_image(image, name="a/b:c", layers=layers, command=["x"])
    with tarfile.open(image) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))
        config_bytes = tar.extractfile(manifest["Config"]).read()
        digests = [
            hashlib.sha256(tar.extractfile(name).read()).hexdigest() for name in manifest["Layers"]
        ]
    config = json.loads(config_bytes)
    assert manifest["RepoTags"] == ["a/b:c"]
    assert manifest["Config"] == f"{hashlib.sha256(config_bytes).hexdigest()}.json"
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]
    assert config["config"]["Cmd"] == ["x"]


def find(tmp_path, **changes):
    settings = {"given": None, "tools": tmp_path, "log": tmp_path / "log", "report": print}
    return images.find_wheel(tmp_path, tmp_path / "cache", **(settings | changes))


def test_project_without_pyproject_has_no_wheel(tmp_path):
    assert find(tmp_path) is None


def test_file_that_is_not_a_wheel_is_rejected(tmp_path, wheel):
    (tmp_path / "no.whl").write_text("text")
    with pytest.raises(RequirementError, match="is not a wheel"):
        find(tmp_path, given=tmp_path / "no.whl")
    assert find(tmp_path, given=wheel) == wheel


def test_cache_entry_depends_on_the_layers_and_the_wheel(tmp_path, wheel):
    def entry(**changes):
        parts = {"base": tmp_path / "base", "libraries": tmp_path / "libraries", "wheel": wheel}
        return images.cache_entry(tmp_path, **(parts | changes))

    before = entry()
    assert entry() == before
    assert entry(wheel=None) != before
    assert entry(base=tmp_path / "other") != before
    assert entry(libraries=tmp_path / "other") != before
    assert entry(libraries=None) != before
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("thing/more.py", "")
    assert entry() != before


def test_requirements_of_an_extra_are_read_from_the_wheel(wheel):
    assert images.extra_requirements(wheel, "kube") == ()
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(
            "thing-1.dist-info/METADATA",
            "Name: thing\nRequires-Dist: pluggy>=1.5\n"
            "Requires-Dist: pyzmq>=26; extra == 'zmq'\n"
            "Requires-Dist: kubernetes>=36; extra == 'kube'\n"
            "Requires-Dist: wsproto>=1.2; extra == 'kube'\n\nThe description.\n",
        )
    assert images.extra_requirements(wheel, "kube") == ("kubernetes>=36", "wsproto>=1.2")
