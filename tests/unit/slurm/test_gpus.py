"""The GPUs of a node that Slurm has allocated."""

from __future__ import annotations

import pytest

from symphony_slurm.job.agent_connection import allocated_gpus


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({}, []),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, ["2", "3"]),
        ({"HIP_VISIBLE_DEVICES": "1"}, ["1"]),
        ({"ROCR_VISIBLE_DEVICES": "4,5"}, ["0", "1"]),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "0,1"}, ["0", "1"]),
    ],
)
def test_allocated_gpus(environ: dict[str, str], gpus: list[str]) -> None:
    assert allocated_gpus(environ) == gpus
