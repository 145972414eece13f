"""The terminal interface ``symphony top``, which is drawn with the library textual.

The modules of this package are imported only by the command ``top``.
"""
