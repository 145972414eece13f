"""The server and the page of `symphony ui`."""
