"""The tools of ``symphony mcp``: the commands that coding agents can call.

`descriptions` derives the tools from the table of commands. `calls` runs a call in a child process,
`scoped_call`, which is limited to a scope. `answers` shortens its output. `tool_server` speaks the
Model Context Protocol.
"""
