"""Every messaging pattern in `symphony.addons.zmq`, in a single description that works on every
backend.

    symphony launch examples/zmq/patterns.py --follow
    symphony launch examples/zmq/patterns.py --follow -b kube --image symphony-zmq:1

The processes that listen are in one group, and the processes that connect are in another. On
Kubernetes, each group is one Pod. Only the ``requests`` service is encrypted.
"""

from symphony import Experiment

NAME = "patterns"


def build(exp: Experiment) -> None:
    listening, connecting = exp.new_process_group("listening"), exp.new_process_group("connecting")
    for service, program, binding, using in (
        ("requests", "request_reply.py", "server", "client"),
        ("work", "push_pull.py", "puller", "pusher"),
        ("topics", "publish_subscribe.py", "publisher", "subscriber"),
    ):
        one = listening.new_process(binding, command="python3", args=[program, binding])
        one.binds(service, encrypted=service == "requests")
        other = connecting.new_process(using, command="python3", args=[program, using])
        other.connects(service)
    listening.get_process("publisher").binds("thanks")
    connecting.get_process("subscriber").connects("thanks")
