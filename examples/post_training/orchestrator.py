"""The orchestrator of the training. It exits when the answers are correct."""

import http.client
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from web import addresses, post

TOLERANCE = 0.001
BATCH = 4
PAUSE = float(sys.argv[1])

environments, servers, ranks = map(addresses, ("environment", "inference", "trainer"))


def sample(number: int) -> tuple[float, float, float]:
    """Return a question, the correct answer, and the error of the answer that was generated."""
    environment = environments[number % len(environments)]
    question = post(environment, "/ask", None)
    correct = post(environment, "/correct", question)
    answer = post(servers[number % len(servers)], "/generate", question)
    return question, correct, abs(answer - correct)


def train(samples: list[Any]) -> float:
    """Return the new weight. If the trainer restarts, repeat the step."""
    while True:
        try:
            return float(post(ranks[0], "/step", samples))
        except (OSError, http.client.HTTPException) as exc:
            print(f"the trainer does not answer: {exc}", flush=True)
            time.sleep(0.2)


with ThreadPoolExecutor(max_workers=BATCH * len(ranks)) as pool:
    for iteration in range(1000):
        samples = list(pool.map(sample, range(BATCH * len(ranks))))
        worst = max(error for _, _, error in samples)
        if worst < TOLERANCE:
            print(f"all answers are correct after {iteration} iterations")
            break
        weight = train([item[:2] for item in samples])
        versions = pool.map(post, servers, ["/update"] * len(servers), [weight] * len(servers))
        print(
            f"iteration {iteration}: error {worst:.4f}, version {next(iter(versions))}", flush=True
        )
        time.sleep(PAUSE)
    else:
        raise SystemExit("the training has not converged")
