"""Run commands in containers, copy files and forward ports."""
