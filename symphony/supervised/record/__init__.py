"""The record of one run: its directory, its event log and the status that is computed from them."""
