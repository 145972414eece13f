"""A ZeroMQ server and its client, described once for every backend.

    symphony launch examples/zmq/experiment.py --follow
    symphony launch examples/zmq/experiment.py --follow -b kube --image symphony-zmq:1

On this machine the programs run in this folder, with the python3 that is on the PATH (it needs pyzmq). In a
container they are in the image's working directory: the Dockerfile beside this file makes such an image.
"""

from symphony import Experiment

NAME = "zmq"


def build(exp: Experiment) -> None:
    server = exp.new_process("server", command="python3", args=["server.py"])
    client = exp.new_process("client", command="python3", args=["client.py"])
    server.binds("example")
    client.connects("example")
