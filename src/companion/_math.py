"""Formulas: those near the window are typeset first, the rest when the browser is idle.

A chapter has hundreds, which take longer than all the rest of the page. What is put together from
a page to be printed or projected needs all of them at once.
"""

from typing import Any

SCRIPT = "companion-math.js"  # typesets the rest
_LAZY = {"loader": {"load": ["ui/lazy"]}}
_AS_WRITTEN = '"loader": {"load": ["ui/lazy"]}'  # by Sphinx, into the page


def settings(given: dict[str, Any] | None) -> dict[str, Any]:
    """Return MathJax's settings."""
    return {**(given or {}), **_LAZY}


def at_once(script: str) -> str:
    """Return a page's script with MathJax's settings, so that it typesets all formulas at once."""
    return script.replace(_AS_WRITTEN, '"loader": {}')
