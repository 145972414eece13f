"""The supervisor of an experiment: it makes the decisions that remain after the launch.

`loop` makes and executes the decisions, which `decisions` computes. `detached` runs the loop in a
process of the launching machine, and `in_cluster` in a Pod of the experiment.
"""
