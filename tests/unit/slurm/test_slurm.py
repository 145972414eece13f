"""Messages of Slurm's programs."""

import subprocess

import pytest

from symphony.errors import LaunchFailed
from symphony_slurm import slurm

ESTIMATE = (
    "sbatch: Job 6 to start at 2026-11-26T14:27:16 using 1 processors on nodes n2 in partition main"
)
FAILED = "sbatch: error: Batch job submission failed: "
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (
            f"sbatch: error: invalid partition specified: x\n{FAILED}Invalid partition name "
            "specified",
            "invalid partition specified: x: Invalid partition name specified; change partition",
        ),
        (
            f"{FAILED}Invalid account or account/partition combination specified",
            "; change account, or account and partition",
        ),
        (f"{FAILED}Invalid qos specification", "Invalid qos specification; change qos"),
        (
            "allocation failure: Invalid account or account/partition combination specified",
            "Invalid account or account/partition combination specified; "
            "change account, or account and partition",
        ),
        (f"{FAILED}{POLICY}", f"{POLICY}; change qos or account"),
        (
            f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{FAILED}{POLICY}",
            f"QOSMaxWallDurationPerJobLimit: {POLICY}; "
            "change time, the deadline of the experiment, qos or account",
        ),
        (
            f"sbatch: error: QOSMaxCpuPerJobLimit\n{FAILED}{POLICY}",
            f"QOSMaxCpuPerJobLimit: {POLICY}; "
            "change the CPU requests of the processes, qos or account",
        ),
        (
            f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)",
            "; change time, or the deadline of the experiment",
        ),
        (
            f"{FAILED}Invalid generic resource (gres) specification",
            "; change the gpu limits of the processes, gpu_type, or the further options of sbatch",
        ),
        (f"{FAILED}Invalid feature specification", "; change node_selector"),
        (
            "sbatch: error: Memory specification can not be satisfied\n"
            f"{FAILED}Requested node configuration is not available",
            "; change the memory requests of the processes, or nodes",
        ),
        (
            "sbatch: error: CPU count per node can not be satisfied\n"
            f"{FAILED}Requested node configuration is not available",
            "; change the CPU requests of the processes, or nodes",
        ),
        (
            f"{FAILED}User's group not permitted to use this partition",
            "; change partition",
        ),
        (
            "sbatch: unrecognized option '--no-such-option'\n"
            'Try "sbatch --help" for more information',
            "unrecognized option '--no-such-option'; change the further options of sbatch",
        ),
        (f"{FAILED}Job held by the site", "Job held by the site"),
    ],
)
def test_refusal_of_a_job_has_the_words_of_slurm_and_the_setting(stderr, message):
    done = subprocess.CompletedProcess(["sbatch"], 1, stdout="", stderr=f"{stderr}\n")
    assert slurm.refusal(done).endswith(message)
    assert "failed" not in slurm.refusal(done)


@pytest.mark.parametrize(
    ("stderr", "answer"),
    [
        (
            ESTIMATE,
            "Slurm would accept the job, and start it at 2026-11-26 14:27:16 using 1 processors "
            "on nodes n2 in partition main",
        ),
        ("", "Slurm would accept the job"),
    ],
)
def test_answer_about_a_job_that_slurm_would_accept(monkeypatch, stderr, answer):
    done = subprocess.CompletedProcess(["sbatch"], 0, stdout="", stderr=f"{stderr}\n")
    monkeypatch.setattr(slurm, "_run", lambda *arguments, **options: done)
    assert slurm.check_submission([], "#!/bin/sh", {}) == answer


@pytest.mark.parametrize(
    ("stderr", "is_refused"),
    [
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{FAILED}{POLICY}", False),
        (f"{FAILED}{POLICY}", False),
        (f"sbatch: error: QOSMaxCpuPerJobLimit\n{FAILED}{POLICY}", True),
        (f"{FAILED}Invalid account or account/partition combination specified", True),
        (f"{FAILED}Requested node configuration is not available", True),
    ],
)
def test_limits_to_which_the_replaced_job_counts_are_ignored(monkeypatch, stderr, is_refused):
    done = subprocess.CompletedProcess(["sbatch"], 1, stdout="", stderr=f"{stderr}\n")
    monkeypatch.setattr(slurm, "_run", lambda *arguments, **options: done)
    if is_refused:
        with pytest.raises(LaunchFailed, match="would refuse"):
            slurm.check_replacement("#!/bin/sh", {})
    else:
        slurm.check_replacement("#!/bin/sh", {})


def test_slow_check_of_nodes_does_not_count_as_an_outage(tmp_path, monkeypatch):
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nexec sleep 1000\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(slurm, "CHECK_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(slurm, "_latest_failure", slurm._LatestFailure())
    messages = slurm.run_on_idle_nodes(["--nodes=1"], ["true"], 2)
    assert messages == ["the job did not end within 0.1 s"]
    # Otherwise, the submission of the job would be refused for some seconds.
    slurm._latest_failure.check()
