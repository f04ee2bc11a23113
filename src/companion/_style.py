"""One look for all figures: colour-blind safe, readable on white and in the dark theme.

Every colour of the cycle has a contrast of at least 3:1 both on white and on the dark
page, and stays apart from the others for the common kinds of colour blindness (tested).
Text and axes are drawn in ``INK``; the copy of a figure shown in the page uses the page's own
text colour in its place, see :mod:`companion._svg`.
"""

from typing import Any

import matplotlib as mpl
from cycler import cycler

INK = "#23252b"
PAPER = "#ffffff"
COLOURS = {
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#009e73",
    "pink": "#cc79a7",
    "purple": "#aa3377",
    "forest": "#117733",
    "grey": "#808080",
}
SEQUENTIAL = "viridis"
DIVERGING = "PuOr"
DARK_PAGE = "#121212"

_CYCLE = [colour for name, colour in COLOURS.items() if name != "grey"]

_SETTINGS: Any = {
    "figure.figsize": (5.6, 3.6),
    "figure.dpi": 100,
    "figure.constrained_layout.use": True,
    # A raster inside a vector figure, and PNG files.
    "savefig.dpi": 200,
    "savefig.transparent": True,
    # Large enough to be read when a figure is shrunk to a phone's width.
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelsize": 11,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "mathtext.fontset": "dejavusans",
    "text.usetex": False,
    # Glyphs as outlines look the same on every machine; the alt text is what is read aloud.
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "patch.edgecolor": INK,
    "hatch.color": INK,
    "boxplot.flierprops.color": INK,
    "axes.prop_cycle": cycler(color=_CYCLE),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.axisbelow": True,
    "grid.color": COLOURS["grey"],
    "grid.alpha": 0.25,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    # A filled legend box would hide its own text in the dark theme.
    "legend.frameon": False,
    "image.cmap": SEQUENTIAL,
}


def style() -> None:
    """Set the book's look for every figure made from now on."""
    mpl.rcdefaults()  # leaves the backend alone; a reader's own matplotlibrc must not matter
    mpl.rcParams.update(_SETTINGS)


def shades(n: int) -> list[str]:
    """Return ``n`` colours in an order one can see, for curves along a parameter.

    From blue over purple to orange, all of them visible on both pages.

    >>> shades(3)
    ['#0072b2', '#9d62b7', '#d55e00']
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    # A violet lighter than the cycle's purple: the mixtures must show on the dark page, too.
    line = [COLOURS["blue"], "#9d62b8", COLOURS["orange"]]
    colours = mpl.colors.LinearSegmentedColormap.from_list("shades", line)
    return [mpl.colors.to_hex(colours(i / max(n - 1, 1))) for i in range(n)]
