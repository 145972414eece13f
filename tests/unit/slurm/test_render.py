"""The batch script of a job."""

import subprocess
from pathlib import Path

import pytest

from symphony.cluster import Cluster
from symphony.errors import SpecError
from symphony.lint import Machine, Target, lint
from symphony.model import Experiment
from symphony_slurm.render import (
    JobOptions,
    batch_script,
    check_time_limit,
    sbatch_options,
    short_limit_note,
    time_limit_seconds,
    warning_seconds,
)
from symphony_slurm.submit.resource_request import choose_shape
from symphony_slurm.submit.sbatch_options import changes_request
from tests.unit.slurm.plans import plan_of


def test_further_options_come_last_so_that_they_take_precedence():
    options = JobOptions(
        partition="gpu", account="lab", qos="high", sbatch=("--mem=1G", "--mail-type=END")
    )
    shape = choose_shape(plan_of({"cpu": 2}, {"memory": "1Gi"}), 2)
    rendered = sbatch_options(
        "rl",
        "0123456789abcdef",
        Path("/shared/rl.0123"),
        shape,
        options,
        time_limit=5400,
        warning=90,
    )
    assert rendered == [
        "--job-name=symphony:rl",
        '--comment={"symphony":"rl","run":"0123456789ab"}',
        "--output=/shared/rl.0123/supervisor.log",
        "--open-mode=append",
        "--no-requeue",
        "--signal=B:TERM@90",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=2",
        "--mem=1024M",
        "--partition=gpu",
        "--account=lab",
        "--qos=high",
        "--time=1:30:00",
        "--mem=1G",
        "--mail-type=END",
    ]


@pytest.mark.parametrize(
    ("options", "job", "deadline", "expected"),
    [
        (None, {}, None, None),
        (7200, {}, None, 7200),
        (None, {}, 600.0, 15 * 60),
        (1800, {}, 600.0, 1800),
        (0, {}, 600.0, 0),
        # A command with a time limit, such as that of submit.
        (None, {"active_deadline": 1200}, None, 25 * 60),
        (None, {"active_deadline": 1200}, 600.0, 15 * 60),
    ],
)
def test_time_limit_of_the_job_is_the_deadline_with_a_margin(options, job, deadline, expected):
    plan = plan_of({}, {}, job=job, deadline=deadline)
    assert time_limit_seconds(plan, options) == expected


def test_time_limits_of_processes_that_start_after_others_do_not_limit_the_job():
    plan = plan_of({}, {}, job={"active_deadline": 60}, starts_after=True)
    assert time_limit_seconds(plan, None) is None


@pytest.mark.parametrize(
    ("grace", "time_limit", "expected"),
    [
        (None, None, 60),
        (10, None, 60),
        (10, 60, 30),
        (300, None, 330),
        (300, 400, 300),
        (300, 0, 330),
    ],
)
def test_experiment_is_stopped_early_enough_for_the_longest_grace_period(
    grace, time_limit, expected
):
    assert warning_seconds(plan_of({}, {}, grace=grace), time_limit) == expected


def test_time_limit_that_is_shorter_than_the_grace_period_is_refused():
    message = (
        "the time limit of the job is 0:02:00, but a stop of its processes can take 0:05:00, "
        "because of their termination_grace_period; set a longer time limit, or shorter grace "
        "periods"
    )
    with pytest.raises(SpecError, match=message):
        check_time_limit(plan_of({}, grace=300), 120)
    for limit in (0, None, 301):
        check_time_limit(plan_of({}, grace=300), limit)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (
            60,
            "the time limit of the job is 0:01:00, but Slurm can announce its end 90 s earlier, so "
            "the processes can be stopped after 0 s; set a time limit of more than 0:02:00",
        ),
        (121, ""),
        (None, ""),
    ],
)
def test_time_limit_within_the_margins_of_slurm_is_explained(limit, expected):
    assert short_limit_note(plan_of({}), limit) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], False),
        (["--mail-type=END", "--begin=now+1hour", "-d afterok:1"], False),
        (["--mail-type=END", "--mem=0"], True),
        (["-pgpu"], True),
        (["-w n1"], True),
    ],
)
def test_further_options_can_change_what_the_job_requests(options, expected):
    assert changes_request(options) is expected


def test_script_quotes_values():
    options = JobOptions(prologue=("ulimit -c 0",))
    script = batch_script(["--exclusive", "--comment=a b", "--nodes=2"], ["/py thon", "x"], options)
    assert script == (
        "#!/bin/bash\n"
        "#SBATCH --exclusive\n"
        "#SBATCH --comment='a b'\n"
        "#SBATCH --nodes=2\n"
        "ulimit -c 0\n"
        "exec '/py thon' x\n"
    )


@pytest.mark.parametrize(("result", "output"), [("true", "ran\n"), ("false", "")])
def test_script_loads_modules_or_ends_with_a_message(result, output):
    options = JobOptions(modules=("cuda/12", "it's"))
    script = batch_script([], ["echo", "ran"], options)
    module = f'module() {{ test "$*" = "load cuda/12 it\'s" && {result}; }}\n'
    done = subprocess.run(["bash", "-c", module + script], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (output, 0 if output else 1)
    if not output:
        assert done.stderr.endswith(
            ": cannot load the modules cuda/12 'it'\"'\"'s'; 'module avail' lists the modules: "
            "set modules\n"
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 0}, "nodes must be a positive number, not 0"),
        ({"nodes": "two"}, "nodes must be a positive number, not 'two'"),
        ({"partition": "a b"}, "partition must be one word"),
        ({"sbatch": ["--a\n--b"]}, "sbatch must contain options of sbatch, such as"),
        ({"sbatch": ["gpu"]}, "sbatch must contain options of sbatch, such as .*, not 'gpu'"),
        ({"sbatch": ["-N4"]}, "sbatch must not contain --nodes; set the number of nodes with"),
        ({"sbatch": ["--array=0-7"]}, "sbatch must not contain --array; use replicas"),
        ({"prologue": ["a\nb"]}, "prologue must contain single lines"),
        ({"time": "soon"}, "time: a time limit must be minutes, .* not 'soon'"),
        ({"time": True}, "time must be a time limit such as"),
        ({"exclusive": "yes"}, "exclusive must be true or false, not 'yes'"),
        ({"gpu_type": "a 100"}, "gpu_type must be one word"),
    ],
)
def test_invalid_options_of_the_cluster_are_refused(options, message, tmp_path):
    with pytest.raises(SpecError, match=message):
        Cluster.new("slurm", state_dir=tmp_path, **options)


def test_dry_run_needs_no_slurm_and_shows_the_script(tmp_path):
    cluster = Cluster.new(
        "slurm", state_dir=tmp_path / "state", nodes=2, gpu_type="a100", exclusive=True, time="2h"
    )
    experiment = cluster.new_experiment("rl")
    experiment.new_process("server", command="true").binds("replay").node_selector("net", "ib")
    client = experiment.new_process("client", command="true", container_image="rl:1")
    client.resource_request(cpu=3, memory="1Gi").resource_limit(gpu=2).add_label("team", "a")
    shown = str(cluster.manifest(experiment))
    for option in ("gres=gpu:a100:2", "constraint=ib", "exclusive", "time=2:00:00", "mem=1024M"):
        assert f"# #SBATCH --{option}\n" in shown.replace("'", "")
    assert "ignored:\n  container_image:\n    - client\n  labels:\n    - client\n" in shown
    assert "# #SBATCH --nodes=2\n" in shown
    assert "# #SBATCH --cpus-per-task=3\n" in shown
    # Slurm chooses the nodes, so the address contains the number of the node.
    assert "SYMPH_REPLAY_HOST: node-1\n" in shown
    assert not (tmp_path / "state").exists()


def test_options_in_the_file_follow_those_of_symphony_and_precede_those_of_the_cluster(tmp_path):
    cluster = Cluster.new("slurm", state_dir=tmp_path / "state", sbatch="--nice=5")
    file = tmp_path / "rl.yml"
    file.write_text(
        "name: rl\nsbatch_options: [--gres=gpu:a100:2, --mail-type=END]\n"
        "processes: {a: {command: 'true'}}\n"
    )
    script = cluster.manifest(Experiment.load_file(file)).script
    options = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert options[-4:] == [
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --gres=gpu:a100:2",
        "#SBATCH --mail-type=END",
        "#SBATCH --nice=5",
    ]


def test_check_reports_options_that_symphony_must_set(tmp_path):
    cluster = Cluster.new("slurm", state_dir=tmp_path / "state")
    experiment = Experiment("rl", sbatch_options=["--mem=1G", "--wrap=ls"])
    experiment.new_process("a", command="true")
    machine = Machine(home="/", base="/", exists=lambda _: True)
    (finding,) = lint(experiment, [Target("slurm", cluster)], machine=machine, offline=True)
    assert finding.path == ("sbatch_options",)
    assert finding.problem == "sbatch_options must not contain --wrap"


def test_check_reports_too_many_nodes_once(tmp_path):
    cluster = Cluster.new("slurm", state_dir=tmp_path / "state", nodes=3)
    experiment = Experiment("rl")
    for name in ("a", "b"):
        experiment.new_process(name, command="true")
    machine = Machine(home="/", base="/", exists=lambda _: True)
    (finding,) = lint(experiment, [Target("slurm", cluster)], machine=machine, offline=True)
    assert (finding.rule, finding.processes) == ("refused", ())
    assert finding.problem.startswith("nodes is 3, but experiment 'rl' has only 2 processes and")
