"""The reference pages of the documentation, written from the code that they are about.

Each generated page is checked in, so that a plain checkout can be read, and compared with the code by a test.
`pages` knows them all; every other module makes one. `hooks` is what the site's builder calls.
"""
