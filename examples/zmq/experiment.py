"""A ZeroMQ server and its client, described once for every backend.

    symphony launch examples/zmq/experiment.py --follow

On this machine the programs run in this folder, with the python3 that is on the PATH (it needs pyzmq). In a
container they are expected in the image's working directory.
"""

from symphony import Experiment

NAME = "zmq"
IMAGE = "symphony-zmq"


def build(exp: Experiment) -> None:
    server = exp.new_process("server", container_image=IMAGE, command="python3", args=["server.py"])
    client = exp.new_process("client", container_image=IMAGE, command="python3", args=["client.py"])
    server.binds("example")
    client.connects("example")
