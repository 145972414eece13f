"""The record of an experiment: what its Pods and Jobs do not show by themselves."""
