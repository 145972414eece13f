"""A ZeroMQ server and its client, in a single description that works on every backend.

    symphony launch examples/zmq/experiment.py --follow
    symphony launch examples/zmq/experiment.py --follow -b kube --image symphony-zmq:1

On this machine, the programs run in this directory with the python3 on PATH, for which pyzmq must
be installed. In a container, they run in the image's working directory. The Dockerfile in this
directory builds a suitable image.
"""

from symphony import Experiment

NAME = "zmq"


def build(exp: Experiment) -> None:
    server = exp.new_process("server", command="python3", args=["server.py"])
    client = exp.new_process("client", command="python3", args=["client.py"])
    server.binds("example")
    client.connects("example")
