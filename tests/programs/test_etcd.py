"""Three members of etcd know one another before they start."""

from __future__ import annotations

PROGRAM = "etcd"


def test_the_members_elect_a_leader_and_survive_the_loss_of_one(running, example, wait_for_line):
    service = running(example)
    wait_for_line(service, "app", "3")
    service.cluster.stop_processes(service.name, ["etcd-2"])
    (process,) = [item for item in service.status if item.name == "etcd-2"]
    assert process.stopped
    seen = service.log("app").count("OK")
    for line in service.cluster.iter_logs(service.name, ["app"], follow=True):
        if line.text == "OK":
            seen -= 1
        if seen < -3:
            break
