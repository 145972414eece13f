"""The experiment file that a command means: how it is loaded, built, and watched."""
