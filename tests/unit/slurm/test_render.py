"""The batch script of a job."""

from pathlib import Path

import pytest

from symphony.cluster import Cluster
from symphony.errors import SpecError
from symphony_slurm.render import JobOptions, batch_script, constraints, sbatch_options


def options_of(options, **settings):
    return sbatch_options(
        "rl", "0123456789abcdef", Path("/shared/rl.0123"), ["--nodes=2"], options, **settings
    )


def test_options_of_the_site_come_last_so_that_they_take_precedence():
    options = JobOptions(partition="gpu", qos="high", sbatch=("--nodes=3", "--exclusive"))
    assert options_of(options) == [
        "--job-name=symphony:rl",
        '--comment={"symphony":"rl","run":"0123456789ab"}',
        "--output=/shared/rl.0123/supervisor.log",
        "--open-mode=append",
        "--no-requeue",
        "--signal=B:TERM@60",
        "--nodes=2",
        "--partition=gpu",
        "--qos=high",
        "--nodes=3",
        "--exclusive",
    ]


@pytest.mark.parametrize(
    ("time", "deadline", "expected"),
    [
        (None, None, []),
        ("2:00:00", None, ["--time=2:00:00"]),
        (None, 600.0, ["--time=15"]),
        ("30", 600.0, ["--time=30"]),
    ],
)
def test_time_limit_is_the_deadline_with_a_margin(time, deadline, expected):
    options = options_of(JobOptions(time=time), deadline=deadline)
    assert [option for option in options if option.startswith("--time")] == expected


def test_features_are_the_values_of_node_selectors():
    selectors = {"gpu": "a100", "infiniband": "true"}
    assert constraints(selectors) == ["a100", "infiniband"]
    assert "--constraint=a100&infiniband" in options_of(
        JobOptions(), constraints=constraints(selectors)
    )


def test_script_loads_modules_and_quotes_values():
    options = JobOptions(modules=("cuda/12", "my module"), prologue=("ulimit -c 0",))
    script = batch_script(["--exclusive", "--comment=a b", "--nodes=2"], ["/py thon", "x"], options)
    assert script == (
        "#!/bin/bash\n"
        "#SBATCH --exclusive\n"
        "#SBATCH --comment='a b'\n"
        "#SBATCH --nodes=2\n"
        "module load cuda/12 'my module'\n"
        "ulimit -c 0\n"
        "exec '/py thon' x\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 0}, "nodes must be a positive number, not 0"),
        ({"nodes": "two"}, "nodes must be a positive number, not 'two'"),
        ({"partition": "a b"}, "partition must be one word"),
        ({"sbatch": ["--a\n--b"]}, "sbatch must contain single lines"),
    ],
)
def test_invalid_options_of_the_cluster_are_refused(options, message, tmp_path):
    with pytest.raises(SpecError, match=message):
        Cluster.new("slurm", state_dir=tmp_path, **options)


def test_dry_run_needs_no_slurm_and_shows_the_script(tmp_path):
    cluster = Cluster.new("slurm", state_dir=tmp_path / "state", nodes=2)
    experiment = cluster.new_experiment("rl")
    experiment.new_process("server", command="true").binds("replay")
    experiment.new_process("client", command="true").resource_request(cpu=3)
    shown = str(cluster.manifest(experiment))
    assert "# #SBATCH --nodes=2\n" in shown
    assert "# #SBATCH --cpus-per-task=3\n" in shown
    # Slurm chooses the nodes, so the address contains the number of the node.
    assert "SYMPH_REPLAY_HOST: node-1\n" in shown
    assert not (tmp_path / "state").exists()
