"""The records of runs: what was launched, how it ended, and its logs.

Every launch is a run with an identifier that is never used again. The record of a run is a
directory:

    record.json     the experiment and how it was launched; see `record.launch_record`
    code.json       the commit of the launched code; see `code_state`
    code.diff       the difference between the commit and the working tree
    result.json     how the run ended; see `record.result_of`
    status.json     the last status of all processes
    logs/           the output of each process in PROCESS.log; see `logs`

A backend adds its own files, such as the manifest and the events. A record that
`symphony.cluster.recorded_run` can read contains these files:

    details.json    the settings, addresses and events of each process
    topology.json   the connections of the processes

While the run is active, its files can be elsewhere. When the experiment is deleted or replaced, the
record is moved to the archive; see `archive`.
"""
