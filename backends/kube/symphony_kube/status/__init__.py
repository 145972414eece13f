"""Read the objects and events of experiments.

`symphony_kube.state` computes the states of processes from these objects.
"""
