"""Plans for the tests of this directory."""

from symphony.model import Experiment
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import resolve

SCHEME = AddressScheme(backend="slurm", host=lambda _: "", bind_host="")


def plan_of(
    *processes,
    groups=(),
    deadline=None,
    job=None,
    grace=None,
    selectors=None,
    starts_after=False,
    sbatch_options=(),
):
    """Return the plan of processes, each of which is a mapping of requests.

    ``groups`` contains a list of such mappings for each group. ``job``, ``grace`` and ``selectors``
    apply to all single processes. With ``starts_after``, each starts after the previous one.
    """
    experiment = Experiment("test", deadline=deadline, sbatch_options=[*sbatch_options])
    for number, request in enumerate(processes):
        process = experiment.new_process(f"p{number}", command="true")
        _add_request(process, request)
        if job:
            process.job(**job)
        if grace is not None:
            process.termination_grace_period(grace)
        for key, value in (selectors or {}).items():
            process.node_selector(key, value)
        if starts_after and number:
            process.starts_after(f"p{number - 1}", "succeeded")
    for number, members in enumerate(groups):
        group = experiment.new_process_group(f"g{number}")
        for index, request in enumerate(members):
            _add_request(group.new_process(f"m{number}-{index}", command="true"), request)
    return resolve(experiment, SCHEME)


def _add_request(process, request):
    limits = {key: value for key, value in request.items() if key == "gpu"}
    requests = {key: value for key, value in request.items() if key != "gpu"}
    if requests:
        process.resource_request(**requests)
    if limits:
        process.resource_limit(**limits)
