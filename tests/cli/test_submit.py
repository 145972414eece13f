"""`symphony submit`: what it reads, what it launches, and how a job goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from symphony.commandline.commands import job_options
from symphony.commandline.commands.job_options import JobRequest, Mount
from symphony.errors import SpecError
from tests.cli.conftest import FOREVER, Program
from tests.cli.terminal import INTERRUPT

FOREVER_COMMAND = ["sh", "-c", FOREVER]


# --- reading ---


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),  # the six forms of sbatch
        ("30:00", 1800),
        ("90:30", 5430),
        ("1:30:00", 5400),
        ("48:00:00", 172800),
        ("2-0", 172800),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("0-0:0:5", 5),
        ("0", 0),
        ("90s", 90),
        ("5m", 300),
        ("2h", 7200),
        ("1h30m", 5400),
        ("0.2s", 1),
    ],
)
def test_times(text: str, seconds: int) -> None:
    assert job_options.parse_time_limit(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-5",
        "1:75",
        "1:2:3:4",
        "1-24",
        "1-2-3",
        "1.5",
        "5 m",
        ":30",
        "30:",
        "h",
        "²",
        "999999-0",
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(SpecError, match="time|longer"):
        job_options.parse_time_limit(text)


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
def test_mounts(text: str, mount: Mount) -> None:
    assert job_options.parse_mount(text) == mount


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/data", "HOST:TARGET"),
        ("data:/data", "for example '/data'"),
        ("/data:data", "the target of '/data:data' "),
        ("/data:", "is empty"),
        ("/a:/b:r0", "ro, rw"),
        ("/a:/b:ro:rw", "HOST:TARGET"),
        ("smb://files/me:/data", "nfs, pvc"),
        ("nfs://files:/data", "must name a server and a directory"),
        ("nfs://files/me:/data:ro", "remove ':ro'"),
        ("pvc://:/data", "is empty"),
    ],
)
def test_what_is_no_mount(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        job_options.parse_mount(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["4Gi", "500M", "1e9", "1048576", "0.5Gi", "1Ti"])
def test_amounts_of_memory(text: str) -> None:
    assert job_options.parse_memory(text) == text


@pytest.mark.parametrize(
    ("text", "said"), [("4096", "'4096Mi'"), ("400m", "'400Mi'"), ("512k", "'512Mi'")]
)
def test_a_unit_that_was_forgotten(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        job_options.parse_memory(text)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "model.py", "--epochs", "3"], "model"),
        (["/usr/bin/python3.12", "-u", "work/Train_Big.v2.py"], "train-big-v2"),
        (["python3", "-m", "tools.train", "x"], "train"),
        (["python3", "-c", "import this"], "python3"),
        (["bash", "run.sh"], "run"),
        (["sh", "-c", "echo hi"], "sh"),
        (["torchrun", "--standalone", "fit.py"], "fit"),
        (["./simulate", "x"], "simulate"),
        (["python"], "python"),
        (["x" * 80], "x" * 63),
        (["7zip"], "p7zip"),
    ],
)
def test_the_name_is_that_of_the_program(command: list[str], name: str) -> None:
    assert job_options.default_name(command) == name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu", {"key": "gpu", "operator": "Exists"}),
        ("gpu=a100", {"key": "gpu", "operator": "Equal", "value": "a100"}),
        ("gpu=", {"key": "gpu", "operator": "Equal", "value": ""}),
        (
            "x.org/gpu=a:NoExecute",
            {"key": "x.org/gpu", "operator": "Equal", "value": "a", "effect": "NoExecute"},
        ),
    ],
)
def test_tolerations(text: str, found: dict[str, str]) -> None:
    assert job_options.parse_toleration(text) == found


def test_requests_equal_limits_unless_told_otherwise() -> None:
    def of(**given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        dumped = job_options.build_experiment(JobRequest(command=("true",), **given)).dump_dict()[
            "processes"
        ]["main"]
        return dumped.get("resource_request", {}), dumped.get("resource_limit", {})

    assert of(cpu="2", memory="4Gi", gpu=1) == (
        {"cpu": "2", "memory": "4Gi"},
        {"cpu": "2", "memory": "4Gi", "gpu": 1},
    )
    assert of(cpu="500m", limit_cpu="1") == ({"cpu": "500m"}, {"cpu": "1"})
    assert of(limit_memory="1Gi") == ({}, {"memory": "1Gi"})
    assert of() == ({}, {})
    for less in ({"cpu": "1", "limit_cpu": "999m"}, {"memory": "1Gi", "limit_memory": "1G"}):
        with pytest.raises(SpecError, match="is less than"):
            of(**less)
    of(memory="1024Mi", limit_memory="1Gi")


def test_the_options_that_are_ignored() -> None:
    request = JobRequest(
        command=("true",), image="x", time=60, retries=0, mount=[job_options.parse_mount("/a:/b")]
    )
    assert job_options.ignored_options(
        request, {"container_image", "job", "volumes.host_path", "labels"}
    ) == [
        "--image",
        "--mount",
        "--time",
    ]
    assert job_options.ignored_options(request, {"job"}) == ["--time"]


# --- on Kubernetes, as far as the dry run ---


def job(program: Program, *words: str, command: tuple[str, ...] = ("true",)) -> dict[str, Any]:
    """The Job that a dry run shows."""
    shown = program.ok("submit", "-b", "kube", "--dry-run", *words, "--", *command)
    (found,) = (item for item in yaml.safe_load_all(shown) if item["kind"] == "Job")
    return found


def test_everything_reaches_the_job(program: Program) -> None:
    found = job(
        program,
        *(
            "--name",
            "train",
            "--image",
            "img:1",
            "--cpu",
            "2",
            "--memory",
            "4Gi",
            "--gpu",
            "1",
            "--time",
            "30:00",
        ),
        *(
            "--mount",
            "/home/me/data:/data",
            "--mount",
            "nfs://files/me:/me",
            "--mount",
            "pvc://c:/c:ro",
        ),
        *(
            "--env",
            "A=b=c",
            "--env",
            "TERM",
            "--workdir",
            "/work",
            "--retries",
            "2",
            "--keep",
            "1h",
            "--grace",
            "2m",
        ),
        *("--shm", "1Gi", "--node-selector", "pool=big", "--toleration", "reserved=me:NoSchedule"),
        command=("python", "model.py", "--name", "--", "$HOME"),
    )
    assert found["metadata"]["namespace"] == "train"
    spec = found["spec"]
    assert (
        spec["backoffLimit"],
        spec["activeDeadlineSeconds"],
        spec["ttlSecondsAfterFinished"],
    ) == (2, 1800, 3600)
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 120)
    assert pod["nodeSelector"] == {"pool": "big"}
    assert pod["tolerations"] == [
        {"key": "reserved", "operator": "Equal", "value": "me", "effect": "NoSchedule"}
    ]
    (container,) = pod["containers"]
    assert (container["name"], container["image"], container["workingDir"]) == (
        "main",
        "img:1",
        "/work",
    )
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
    assert mounts == {"/data": False, "/me": False, "/c": True, "/dev/shm": False}
    kinds = [next(key for key in volume if key != "name") for volume in pod["volumes"]]
    assert kinds == ["hostPath", "nfs", "persistentVolumeClaim", "emptyDir"]


def test_what_is_left_away_is_left_to_the_cluster(program: Program) -> None:
    spec = job(program, "--image", "img:1", "--time", "0")["spec"]
    assert spec["backoffLimit"] == 0
    assert not {"activeDeadlineSeconds", "ttlSecondsAfterFinished"} & spec.keys()
    assert "resources" not in spec["template"]["spec"]["containers"][0]


def test_the_image_may_be_the_backends(program: Program) -> None:
    shown = program.ok("-b", "kube", "--image", "all:1", "submit", "--dry-run", "--", "true")
    assert "image: all:1" in shown
    done = program("submit", "-b", "kube", "--dry-run", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "symphony: error: a container image is required; add --image IMAGE\n"


# --- on this machine ---


def test_it_is_an_experiment_as_any_other(program: Program) -> None:
    first, *hints = program.ok(
        "submit", "--name", "train", "--", "sh", "-c", "echo hi; exit 3"
    ).splitlines()
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


def test_what_follows_the_two_dashes_arrives_untouched(program: Program) -> None:
    words = ["--name", "--", "", "$HOME", "a b", "*", "-h", "ü\n"]
    done = program("submit", "--follow", "--", "sh", "-c", 'printf "<%s>" "$@"', "sh", *words)
    assert done.returncode == 0
    assert done.stdout.rstrip("\n") == "".join(f"<{word}>" for word in words)


def test_what_this_machine_ignores_is_told(program: Program) -> None:
    done = program(
        *(
            "submit",
            "--name",
            "train",
            "--image",
            "IMG",
            "--cpu",
            "2",
            "--memory",
            "4Gi",
            "--limit-cpu",
            "3",
        ),
        *("--mount", "/home/me/data:/data", "--time", "30:00", "--retries", "1", "--", "true"),
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "submitted train on local")
    assert done.stderr == (
        "symphony: ignored on local: --image, --cpu, --memory, --limit-cpu, --mount, --time, --retries\n"
    )


def test_environment_secrets_and_folder(program: Program) -> None:
    (program.directory / "work").mkdir()
    (program.directory / "token.txt").write_text("s3cret")
    script = (
        'pwd; echo "$A $B"; cat "$SYMPHONY_SECRETS_DIR/token.txt" "$SYMPHONY_SECRETS_DIR/other"'
    )
    done = program(
        *("submit", "--follow", "--workdir", "work", "--env", "A=1", "--env", "B"),
        *("--secret", "token.txt", "--secret", "other=./token.txt", "--", "sh", "-c", script),
        B="taken over",
    )
    assert done.stdout == f"{program.directory / 'work'}\n1 taken over\ns3crets3cret\n"


@pytest.mark.parametrize(
    ("how", "shown"), [("--follow", "hi\n"), ("--wait", "sh failed: 1 failed\n")]
)
def test_it_may_exit_as_the_job_does(program: Program, how: str, shown: str) -> None:
    done = program("submit", how, "--", "sh", "-c", "echo hi; exit 7")
    assert (done.returncode, done.stdout) == (7, shown)
    assert done.stderr.splitlines()[-1] == "main failed: exit code 7"


def test_json(program: Program) -> None:
    command = ["sh", "-c", "echo hi"]
    manifest = json.loads(program.ok("submit", "--name", "a", "--json", "--", *command))
    assert (manifest["experiment"], manifest["processes"][0]["name"]) == ("a", "main")
    done = program("submit", "--name", "b", "--json", "--wait", "--", *command)
    assert json.loads(done.stdout)["exit_code"] == 0
    lines = program(
        "submit", "--name", "c", "--json", "--follow", "--", *command
    ).stdout.splitlines()
    assert json.loads(lines[0]) == {"process": "main", "text": "hi"}
    assert json.loads(lines[1])["exit_code"] == 0


def test_a_dry_run_starts_nothing(program: Program) -> None:
    shown = program.ok(
        "submit", "--dry-run", "--image", "x", "--time", "5m", "--", "python3", "model.py"
    )
    assert yaml.safe_load(shown)["ignored"] == {"container_image": ["main"], "job": ["main"]}
    assert (
        json.loads(program.ok("submit", "--dry-run", "--json", "--", "true"))["experiment"]
        == "true"
    )
    assert program.state_entries() == []


def test_a_name_that_is_there_needs_force(program: Program) -> None:
    program("submit", "--wait", "--name", "train", "--", "sh", "-c", "echo first")
    done = program("submit", "--name", "train", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "symphony: error: job 'train' already exists (succeeded) and cannot be changed; pass --force to replace it, "
        "or choose another --name\n"
    )
    assert program.ok("logs", "train") == "first\n"
    program.ok("submit", "--name", "train", "--force", "--", *FOREVER_COMMAND)
    (live,) = program.json("ps", "train")["processes"]
    done = program("submit", "--name", "train", "--", "true")
    assert done.returncode == 2
    assert "(running)" in done.stderr
    assert program.json("ps", "train")["processes"][0]["pid"] == live["pid"]
    done = program("submit", "--name", "train", "--force", "--follow", "--", "echo", "second")
    assert (done.returncode, done.stdout) == (0, "second\n")


WRONG: dict[str, tuple[list[str], str]] = {
    "nothing": ([], "symphony submit --name NAME -- python train.py"),
    "no command": (["--name", "a", "--"], "-- python train.py"),
    "no dashes": (["--cpu", "1", "python", "a.py", "--epochs", "3"], "-- python a.py --epochs 3"),
    "a word before the dashes": (["a", "--", "true"], "options must precede it"),
    "an unknown option": (["--cpus", "1", "--", "true"], "did you mean '--cpu' or '--gpu'?"),
    "a bad name": (["--name", "My_Job", "--", "true"], "'my-job'"),
    "no name": (["--", "!"], "pass --name"),
    "cpu": (["--cpu", "two", "--", "true"], "--cpu: "),
    "memory": (["--memory", "4096", "--", "true"], "--memory: '4096' is less than a megabyte"),
    "gpu": (["--gpu", "-1", "--", "true"], "--gpu"),
    "gpu of a half": (["--gpu", "0.5", "--", "true"], "--gpu: must be a whole number"),
    "time": (["--time", "soon", "--", "true"], "--time: a time limit must be minutes, M:SS"),
    "mount": (["--mount", "data:/data", "--", "true"], "--mount: "),
    "two mounts": (
        ["--mount", "/a:/c", "--mount", "/b:/c", "--", "true"],
        "mounts two volumes at '/c'",
    ),
    "a variable that is not set": (["--env", "NOT_SET_HERE", "--", "true"], "NOT_SET_HERE=VALUE"),
    "a variable's name": (["--env", "1=2", "--", "true"], "--env: variable name '1'"),
    "two secrets": (
        ["--secret", "a/t", "--secret", "b/t", "--", "true"],
        "two secrets have the name 't': a/t and b/t",
    ),
    "a secret that is not there": (["--secret", "t", "--", "true"], "there is no file"),
    "a label": (["--node-selector", "gpu", "--", "true"], "KEY=VALUE"),
    "an effect": (["--toleration", "a:NoSchedul", "--", "true"], "did you mean 'NoSchedule'"),
    "an empty toleration": (["--toleration", "", "--", "true"], "--toleration: "),
    "two ways to stay": (["--follow", "--wait", "--", "true"], "not allowed with"),
    "a limit below": (
        ["--cpu", "2", "--limit-cpu", "1", "--", "true"],
        "--limit-cpu 1 is less than --cpu 2",
    ),
    "no such program": (["--", "no-such-program"], "'no-such-program' was not found"),
    "no such folder": (["--workdir", "nowhere", "--", "true"], "nowhere"),
    "GPUs that are not there": (
        ["--gpu", "1", "--", "true"],
        "none that are visible; lower --gpu, or omit it",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_line(program: Program, what: str) -> None:
    words, said = WRONG[what]
    done = program("submit", *words, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("symphony: error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert program.state_entries() == []


def test_on_a_terminal_ctrl_c_tells_the_job_to_end_and_shows_its_last_words(
    program: Program,
) -> None:
    script = "trap 'echo saved; exit 4' TERM; echo up; while :; do sleep 0.05; done"
    terminal = program.terminal("submit", "--name", "train", "--follow", "--", "sh", "-c", script)
    terminal.expect("up\n")
    terminal.press(INTERRUPT)
    terminal.expect("saved\n")
    assert terminal.finish() == 130
    (process,) = program.json("ps", "train")["processes"]
    assert (process["exit_code"], process["stopped"]) == (4, True)


def test_ctrl_c_while_it_waits_leaves_the_job_alone(program: Program) -> None:
    terminal = program.terminal("submit", "--name", "train", "--wait", "--", *FOREVER_COMMAND)
    terminal.expect("waiting for train")
    terminal.press(INTERRUPT)
    assert terminal.finish() == 130
    assert program.json("ps", "train")["state"] == "running"


# --- in tmux ---


def test_the_same_in_tmux(program: Program, tmux_sockets: Path) -> None:
    pytest.importorskip("libtmux")
    env = {"TMUX_TMPDIR": str(tmux_sockets), "SYMPHONY_BACKEND": "tmux", "TMUX": ""}
    words = ["--name", "train", "--image", "IMG", "--cpu", "2", "--mount", "/a:/b", "--time", "1h"]
    done = program("submit", *words, "--", "sh", "-c", "echo hi; exit 3", **env)
    try:
        assert done.stdout.startswith("submitted train on tmux\n")
        assert done.stderr == "symphony: ignored on tmux: --image, --cpu, --mount, --time\n"
        assert program("wait", "train", **env).returncode == 3
        assert program.ok("logs", "train", **env) == "hi\n"
        assert "--force" in program("submit", "--name", "train", "--", "true", **env).stderr
        assert (
            program(
                "submit", "--name", "train", "--force", "--follow", "--", "echo", "2", **env
            ).stdout
            == "2\n"
        )
    finally:
        assert program("delete", "-f", "train", **env).returncode == 0
