"""``symphony submit``: option values, the rendered Job, and jobs on this machine."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from symphony.commandline.commands import job_options
from symphony.commandline.commands.job_options import JobRequest, Mount
from symphony.errors import SpecError
from tests.cli.conftest import FOREVER, LOOP, Program
from tests.cli.terminal import INTERRUPT

FOREVER_COMMAND = ["sh", "-c", FOREVER]


# --- option values ---


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/home/me:/data", Mount(kind="host_path", source="/home/me", target="/data")),
        (
            "/home/me:/data:ro",
            Mount(kind="host_path", source="/home/me", target="/data", read_only=True),
        ),
        ("/home/me:/data:rw", Mount(kind="host_path", source="/home/me", target="/data")),
        (
            "nfs://files/home/me:/data",
            Mount(kind="nfs", server="files", source="/home/me", target="/data"),
        ),
        ("pvc://claim:/data:ro", Mount(kind="pvc", source="claim", target="/data", read_only=True)),
    ],
)
def test_mount(text: str, mount: Mount) -> None:
    assert job_options.parse_mount(text) == mount


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/data", "HOST:TARGET"),
        ("data:/data", "for example '/data'"),
        ("/data:data", "the target of '/data:data' "),
        ("/data:", "empty"),
        ("/a:/b:r0", "ro, rw"),
        ("/a:/b:ro:rw", "HOST:TARGET"),
        ("smb://files/me:/data", "nfs, pvc"),
        ("nfs://files:/data", "must name a server and a directory"),
        ("nfs://files/me:/data:ro", "remove ':ro'"),
        ("pvc://:/data", "empty"),
    ],
)
def test_invalid_mount(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        job_options.parse_mount(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "suggestion"), [("4096", "'4096Mi'"), ("400m", "'400Mi'"), ("512k", "'512Mi'")]
)
def test_memory_without_a_unit_is_refused(text: str, suggestion: str) -> None:
    with pytest.raises(SpecError, match=suggestion):
        job_options.parse_memory(text)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "model.py", "--epochs", "3"], "model"),
        (["/usr/bin/python3.12", "-u", "work/Train_Big.v2.py"], "train-big-v2"),
        (["python3", "-m", "tools.train", "x"], "train"),
        (["python3", "-c", "import this"], "python3"),
        (["bash", "run.sh"], "run"),
        (["torchrun", "--standalone", "fit.py"], "fit"),
        (["./simulate", "x"], "simulate"),
        (["python"], "python"),
        (["x" * 80], "x" * 63),
        (["7zip"], "p7zip"),
    ],
)
def test_default_name_is_that_of_the_program(command: list[str], name: str) -> None:
    assert job_options.default_name(command) == name


def test_numbered_name_is_shortened() -> None:
    names = islice(job_options.numbered_names("x" * 60 + "-yz"), 1, None)
    assert next(names) == "x" * 60 + "-2"
    assert next(islice(names, 7, None)) == "x" * 60 + "-10"


@pytest.mark.parametrize(
    ("text", "toleration"),
    [
        ("gpu", {"key": "gpu", "operator": "Exists"}),
        ("gpu=", {"key": "gpu", "operator": "Equal", "value": ""}),
        (
            "x.org/gpu=a:NoExecute",
            {"key": "x.org/gpu", "operator": "Equal", "value": "a", "effect": "NoExecute"},
        ),
    ],
)
def test_toleration(text: str, toleration: dict[str, str]) -> None:
    assert job_options.parse_toleration(text) == toleration


def resources(**options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the requests and limits of a job with the options."""
    experiment = job_options.build_experiment(JobRequest(command=("true",), **options))
    process = experiment.dump_dict()["processes"]["main"]
    return process.get("resource_request", {}), process.get("resource_limit", {})


def test_default_of_a_limit_is_the_request() -> None:
    assert resources(cpu="2", memory="4Gi", gpu=1) == (
        {"cpu": "2", "memory": "4Gi"},
        {"cpu": "2", "memory": "4Gi", "gpu": 1},
    )
    assert resources(cpu="500m", limit_cpu="1") == ({"cpu": "500m"}, {"cpu": "1"})
    assert resources(limit_memory="1Gi") == ({}, {"memory": "1Gi"})
    assert resources() == ({}, {})


def test_limit_must_not_be_less_than_the_request() -> None:
    for options in ({"cpu": "1", "limit_cpu": "999m"}, {"memory": "1Gi", "limit_memory": "1G"}):
        with pytest.raises(SpecError, match="is less than"):
            resources(**options)
    resources(memory="1024Mi", limit_memory="1Gi")


def test_only_given_options_are_reported_as_ignored() -> None:
    mount = job_options.parse_mount("/a:/b")
    request = JobRequest(command=("true",), image="x", time=60, retries=0, mount=[mount])
    ignored = {"container_image", "job.active_deadline", "volumes.host_path", "labels"}
    assert job_options.ignored_options(request, ignored) == ["--image", "--mount", "--time"]


# --- the rendered Job ---


def render_job(program: Program, options: str, *command: str) -> dict[str, Any]:
    """Return the Kubernetes Job of a dry run; ``options`` are separated by spaces."""
    words = ["submit", "-b", "kube", "--dry-run", *options.split(), "--", *command]
    (job,) = (item for item in yaml.safe_load_all(program.ok(*words)) if item["kind"] == "Job")
    return job


def test_job_contains_every_option(program: Program) -> None:
    job = render_job(
        program,
        "--name train --image img:1 --cpu 2 --memory 4Gi --gpu 1 --time 30:00 "
        "--mount /home/me/data:/data --mount nfs://files/me:/me --mount pvc://c:/c:ro "
        "--env A=b=c --env TERM --workdir /work --retries 2 --keep 1h --grace 2m "
        "--shm 1Gi --node-selector pool=big --toleration reserved=me:NoSchedule",
        *("python", "model.py", "--name", "--", "$HOME"),
    )
    assert job["metadata"]["namespace"] == "train"
    spec = job["spec"]
    assert spec["backoffLimit"] == 2
    assert spec["activeDeadlineSeconds"] == 1800
    assert spec["ttlSecondsAfterFinished"] == 3600
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 120)
    assert pod["nodeSelector"] == {"pool": "big"}
    assert pod["tolerations"] == [
        {"key": "reserved", "operator": "Equal", "value": "me", "effect": "NoSchedule"}
    ]
    (container,) = pod["containers"]
    assert (container["name"], container["image"]) == ("main", "img:1")
    assert container["workingDir"] == "/work"
    assert container["command"] == ["python", "model.py", "--name", "--", "$HOME"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
    }
    assert {"name": "A", "value": "b=c"} in container["env"]
    assert {"name": "TERM", "value": "xterm"} in container["env"]
    mounts = {
        mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]
    }
    own_mounts = {"/data": False, "/me": False, "/c": True, "/dev/shm": False}
    assert mounts == {**own_mounts, "/symphony/scratch": False, "/symphony/scripts": True}
    kinds = [next(key for key in volume if key != "name") for volume in pod["volumes"]]
    assert sorted(kinds) == [
        "configMap",
        *("emptyDir", "emptyDir", "hostPath", "nfs", "persistentVolumeClaim"),
    ]


def test_options_that_are_not_given_are_not_rendered(program: Program) -> None:
    spec = render_job(program, "--image img:1 --time 0", "true")["spec"]
    assert spec["backoffLimit"] == 0
    assert not {"activeDeadlineSeconds", "ttlSecondsAfterFinished"} & spec.keys()
    assert "resources" not in spec["template"]["spec"]["containers"][0]


def test_image_can_be_an_option_of_the_backend(program: Program) -> None:
    output = program.ok("-b", "kube", "--image", "all:1", "submit", "--dry-run", "--", "true")
    assert "image: all:1" in output
    done = program("submit", "-b", "kube", "--dry-run", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "symphony: error: a container image is required; add --image IMAGE\n"


# --- jobs on this machine ---


def test_job_is_an_experiment(program: Program) -> None:
    command = ("sh", "-c", "echo hi; exit 3")
    first, *hints = program.ok("submit", "--name", "train", "--", *command).splitlines()
    assert first == "submitted train on local"
    assert [hint.split("  ")[1] for hint in hints] == [
        "symphony ps train",
        "symphony logs -f train",
        "symphony delete train",
    ]
    assert program("wait", "train").returncode == 3
    assert program.ok("logs", "train") == "hi\n"
    (process,) = program.json("ps", "train")["processes"]
    assert (process["name"], process["state"], process["exit_code"]) == ("main", "failed", 3)
    program.ok("delete", "-f", "train")
    assert program.state_entries() == []


def test_command_is_passed_on_unchanged(program: Program) -> None:
    words = ["--name", "--", "", "$HOME", "a b", "*", "-h", "ü\n"]
    done = program("submit", "--follow", "--", "sh", "-c", 'printf "<%s>" "$@"', "sh", *words)
    assert done.returncode == 0
    assert done.stdout.rstrip("\n") == "".join(f"<{word}>" for word in words)


def test_replicas_run_at_the_same_time_with_their_numbers(program: Program) -> None:
    options = ["--name", "sweep", "--replicas", "3", "--retries", "1", "--env", "A=${index}"]
    command = ["sh", "-c", 'echo "$SYMPHONY_ROLE $1 $A"', "sh", "seed=${index}"]
    done = program("submit", *options, "--wait", "--", *command)
    assert done.stdout == "sweep succeeded: 3 succeeded\n"
    for number in range(3):
        log = program.ok("logs", "sweep", f"main-{number}")
        assert log == f"main-{number} seed={number} ${{index}}\n"
    assert len(program.json("ps", "sweep", "main")["processes"]) == 3


def test_ignored_options_are_reported(program: Program) -> None:
    options = (
        "--name train --image IMG --cpu 2 --memory 4Gi --limit-cpu 3 "
        "--mount /home/me/data:/data --time 30:00 --retries 1 --keep 1h"
    )
    done = program("submit", *options.split(), "--", "true")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "submitted train on local")
    assert done.stderr == (
        "symphony: ignored on local: --image, --cpu, --memory, --limit-cpu, --mount, --keep\n"
    )


def test_environment_secrets_and_working_directory(program: Program) -> None:
    (program.directory / "work").mkdir()
    (program.directory / "token.txt").write_text("short")
    script = (
        'pwd; echo "$A $B"; cat "$SYMPHONY_SECRETS_DIR/token.txt" "$SYMPHONY_SECRETS_DIR/other"'
    )
    options = "--workdir work --env A=1 --env B --secret token.txt --secret other=./token.txt"
    done = program(
        "submit", "--follow", *options.split(), "--", "sh", "-c", script, B="from outside"
    )
    assert done.stdout == f"{program.directory / 'work'}\n1 from outside\nshortshort\n"


@pytest.mark.parametrize(
    ("option", "output", "log"),
    [
        ("--follow", "hi\n", []),
        ("--wait", "sh failed: 1 failed\n", ["last lines (of main):", "  hi"]),
    ],
)
def test_exit_code_is_that_of_the_job(
    program: Program, option: str, output: str, log: list[str]
) -> None:
    done = program("submit", option, "--", "sh", "-c", "echo hi; exit 7")
    assert (done.returncode, done.stdout) == (7, output)
    _, _, end = done.stderr.partition("main failed: exit code 7\n")
    assert end.splitlines() == log


def test_json_output(program: Program) -> None:
    command = ["sh", "-c", "echo hi"]
    manifest = json.loads(program.ok("submit", "--name", "a", "--json", "--", *command))
    assert (manifest["experiment"], manifest["processes"][0]["name"]) == ("a", "main")
    done = program("submit", "--name", "b", "--json", "--wait", "--", *command)
    assert json.loads(done.stdout)["exit_code"] == 0
    done = program("submit", "--name", "c", "--json", "--follow", "--", *command)
    line, status = [json.loads(text) for text in done.stdout.splitlines()]
    assert line == {"process": "main", "text": "hi"}
    assert status["exit_code"] == 0


def test_a_default_name_that_is_in_use_gets_a_number(program: Program) -> None:
    def name_of(*words: str) -> str:
        return program.ok("submit", *words).partition(" on local")[0].removeprefix("submitted ")

    assert name_of("--", *FOREVER_COMMAND) == "sh"
    program("submit", "--wait", "--", "sh", "-c", "echo second")
    done = program("submit", "--follow", "--", "sh", "-c", "echo third")
    assert done.stdout == "third\n"
    assert done.stderr.startswith("launched sh-3 on local: 1 process\n")
    assert program.ok("logs", "sh-2") == "second\n"
    assert "sh-4" in program.ok("submit", "--dry-run", "--", "sh")
    assert name_of("--force", "--", *FOREVER_COMMAND) == "sh"
    names = [status["name"] for status in program.json("ls")]
    assert sorted(names) == ["sh", "sh-2", "sh-3"]


def test_existing_job_is_only_replaced_with_force(program: Program) -> None:
    program("submit", "--wait", "--name", "train", "--", "sh", "-c", "echo first")
    done = program("submit", "--name", "train", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "symphony: error: job 'train' already exists (succeeded) and cannot be changed; "
        "pass --force to replace it, or choose another --name\n"
    )
    assert program.ok("logs", "train") == "first\n"
    program.ok("submit", "--name", "train", "--force", "--", *FOREVER_COMMAND)
    (running,) = program.json("ps", "train")["processes"]
    assert "(running)" in program("submit", "--name", "train", "--", "true").stderr
    assert program.json("ps", "train")["processes"][0]["pid"] == running["pid"]
    done = program("submit", "--name", "train", "--force", "--follow", "--", "echo", "second")
    assert (done.returncode, done.stdout) == (0, "second\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "symphony submit --name NAME -- python train.py"),
        (["--name", "a", "--"], "-- python train.py"),
        (["--cpu", "1", "python", "a.py", "--epochs", "3"], "-- python a.py --epochs 3"),
        (["a", "--", "true"], "options must precede it"),
        (["--cpus", "1", "--", "true"], "unknown option '--cpus'; use --cpu N; "),
        (["--name", "My_Job", "--", "true"], "'my-job'"),
        (["--", "!"], "pass --name"),
        (["--cpu", "two", "--", "true"], "--cpu: "),
        (
            ["--memory", "4096", "--", "true"],
            "'4096' is less than a megabyte",
        ),
        (["--gpu", "0.5", "--", "true"], "--gpu: "),
        (["--time", "soon", "--", "true"], "--time: "),
        (["--replicas", "0", "--", "true"], "replicas must be between 1 and 10000, not '0'"),
        (["--mount", "data:/data", "--", "true"], "--mount: "),
        (["--mount", "/a:/c", "--mount", "/b:/c", "--", "true"], "'/c'"),
        (["--env", "NOT_SET_HERE", "--", "true"], "NOT_SET_HERE=VALUE"),
        (["--env", "1=2", "--", "true"], "--env: variable name '1'"),
        (["--secret", "a/t", "--secret", "b/t", "--", "true"], "have the name 't': a/t and b/t"),
        (["--secret", "t", "--", "true"], "there is no file"),
        (["--node-selector", "gpu", "--", "true"], "KEY=VALUE"),
        (["--toleration", "a:NoSchedul", "--", "true"], "did you mean 'NoSchedule'"),
        (["--follow", "--wait", "--", "true"], "not allowed with"),
        (["--cpu", "2", "--limit-cpu", "1", "--", "true"], "--limit-cpu 1 is less than --cpu 2"),
        (["--", "no-such-program"], "'no-such-program' was not found"),
        (["--workdir", "nowhere", "--", "true"], "nowhere"),
        (["--gpu", "1", "--", "true"], "; lower --gpu, or omit it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line(program: Program, words: list[str], message: str) -> None:
    done = program("submit", *words, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("symphony: error: ")
    assert message in done.stderr
    assert program.state_entries() == []


def test_ctrl_c_stops_a_followed_job_and_shows_its_last_output(program: Program) -> None:
    script = f"trap 'echo saved; exit 4' TERM; echo up; {LOOP}"
    terminal = program.terminal("submit", "--name", "train", "--follow", "--", "sh", "-c", script)
    terminal.expect("up\n")
    terminal.press(INTERRUPT)
    terminal.expect("saved\n")
    assert terminal.finish() == 130
    (process,) = program.json("ps", "train")["processes"]
    assert (process["exit_code"], process["stopped"]) == (4, True)


def test_ctrl_c_during_wait_does_not_stop_the_job(program: Program) -> None:
    terminal = program.terminal("submit", "--name", "train", "--wait", "--", *FOREVER_COMMAND)
    terminal.expect("waiting for train")
    terminal.press(INTERRUPT)
    assert terminal.finish() == 130
    assert program.json("ps", "train")["state"] == "running"


def test_job_in_tmux(program: Program, tmux_sockets: Path) -> None:
    pytest.importorskip("libtmux")
    env = {"TMUX_TMPDIR": str(tmux_sockets), "SYMPHONY_BACKEND": "tmux", "TMUX": ""}
    submit = ["submit", "--name", "train"]
    options = ["--image", "IMG", "--cpu", "2", "--mount", "/a:/b", "--time", "1h"]
    done = program(*submit, *options, "--", "sh", "-c", "echo hi; exit 3", **env)
    try:
        assert done.stdout.startswith("submitted train on tmux\n")
        assert done.stderr == "symphony: ignored on tmux: --image, --cpu, --mount\n"
        assert program("wait", "train", **env).returncode == 3
        assert program.ok("logs", "train", **env) == "hi\n"
        assert "--force" in program(*submit, "--", "true", **env).stderr
        done = program(*submit, "--force", "--follow", "--", "echo", "2", **env)
        assert done.stdout == "2\n"
    finally:
        assert program("delete", "-f", "train", **env).returncode == 0
