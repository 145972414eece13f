"""A data-parallel training with torch.distributed, which resumes from its checkpoint.

The ranks have different data, whose average gradient leads to the weight 3. Without the average,
rank r would learn the weight r + 1 + (5 - size) / 2.
"""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint", type=Path, required=True)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps")
arguments = parser.parse_args()

# The default is env://, which reads MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
first = 0
if arguments.checkpoint.exists():
    state = torch.load(arguments.checkpoint)
    model.load_state_dict(state["model"])
    first = state["step"]
    print(f"rank {rank} resumes at step {first}", flush=True)
# A rank can only write a checkpoint when all ranks have read the previous one.
dist.barrier()

parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.2)
question = torch.ones(1, 1)
answer = question * (rank + 1 + (5 - size) / 2)
for step in range(first, arguments.steps):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(parallel(question), answer).backward()
    optimizer.step()
    if rank == 0:
        temporary = arguments.checkpoint.with_suffix(".new")
        torch.save({"model": model.state_dict(), "step": step + 1}, temporary)
        temporary.replace(arguments.checkpoint)
        print(f"step {step + 1}: weight {model.weight.item():.3f}", flush=True)
    time.sleep(arguments.pause)

print(f"rank {rank} of {size} has learned {model.weight.item():.3f}", flush=True)
dist.destroy_process_group()
