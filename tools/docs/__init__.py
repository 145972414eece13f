"""Tools that write the generated parts of the documentation.

Each generated page is committed, so that the documentation in a checkout can be read without
building it. A test checks that each page matches the code. The module `pages` lists the generated
pages. The modules `command_line`, `experiment_file` and `parity` generate them. The module `hooks`
extends MkDocs, `docstrings` extends its API reference, `pictures` records the pictures on the home
page, `ui_pictures` records those of `symphony ui`, and `code_width` checks the built site in a
browser.
"""
