"""Measuring the resources that the processes of an experiment use on this machine."""
