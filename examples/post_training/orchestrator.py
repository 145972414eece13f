"""The orchestrator of the training. It exits when the answers are correct."""

from concurrent.futures import ThreadPoolExecutor

from web import addresses, post

TOLERANCE = 0.001
BATCH = 4

environments, servers, ranks = map(addresses, ("environment", "inference", "trainer"))


def sample(number: int) -> tuple[float, float, float]:
    """Return a question, the correct answer, and the error of the answer that was generated."""
    environment = environments[number % len(environments)]
    question = post(environment, "/ask", None)
    correct = post(environment, "/correct", question)
    answer = post(servers[number % len(servers)], "/generate", question)
    return question, correct, abs(answer - correct)


with ThreadPoolExecutor(max_workers=BATCH * len(ranks)) as pool:
    for iteration in range(1000):
        samples = list(pool.map(sample, range(BATCH * len(ranks))))
        worst = max(error for _, _, error in samples)
        if worst < TOLERANCE:
            print(f"all answers are correct after {iteration} iterations")
            break
        shares = [[item[:2] for item in samples[rank :: len(ranks)]] for rank in range(len(ranks))]
        weights = set(pool.map(post, ranks, ["/step"] * len(ranks), shares))
        if len(weights) != 1:
            raise SystemExit(f"the ranks have different weights: {weights}")
        versions = pool.map(post, servers, ["/update"] * len(servers), list(weights) * len(servers))
        print(
            f"iteration {iteration}: error {worst:.4f}, version {next(iter(versions))}", flush=True
        )
    else:
        raise SystemExit("the training has not converged")
