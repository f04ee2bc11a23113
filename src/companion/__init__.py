"""The machine of the book: it executes chapters, keeps claims and figures, and builds the site.

It knows no mathematics: a chapter brings that from elsewhere. Chapters use two names,

>>> from companion import claims, figures

and readers use the command ``python -m companion``, see :mod:`companion.__main__`.
"""
