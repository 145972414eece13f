"""Find the experiments, processes and runs that a command means."""
