"""A lean site: of what the theme and MathJax bring, only what a page can load."""

import re
import shutil
from pathlib import Path

# What MathJax needs on our pages; the package brings four times as much.
_MATHJAX_UNUSED = (
    # inside tex-chtml.js, which every page loads
    "a11y/assistive-mml.js",
    "input/tex-base.js",
    "input/tex.js",
    "input/tex/extensions/all-packages.js",
    "output/chtml.js",
    "output/chtml/fonts/tex.js",
    "ui/menu.js",
    # for other kinds of input, output and machine
    "adaptors",
    "input/asciimath.js",
    "input/tex-full.js",
    "input/mml.js",
    "input/mml",
    "output/svg",
    "output/svg.js",
    "core.js",
    "latest.js",
    "loader.js",
    "mml-chtml.js",
    "mml-svg.js",
    "node-main.js",
    "startup.js",
    "tex-chtml-full.js",
    "tex-chtml-full-speech.js",
    "tex-mml-chtml.js",
    "tex-mml-svg.js",
    "tex-svg.js",
    "tex-svg-full.js",
)
# The theme's script holds the drawings of two thousand icons: name: [width, height, [other names],
# "code", path or paths].
_ICON = re.compile(
    r'(?:"(?P<quoted>[\w-]+)"|(?P<name>[\w$]+)):\[\d+,\d+,\[(?P<others>[^\]]*)\],"[0-9a-f]+",'
    r'(?:"[^"]*"|\[[^\]]*\])\],?'
)
_CLASS = re.compile(r"\bfa-([a-z0-9-]+)")
_BRANDS = re.compile(r"\bfa-brands\b|\bfab\b")


def prune(static: Path) -> None:
    """Take out of a site's static files what none of its pages loads."""
    unused = [static / "mathjax" / name for name in _MATHJAX_UNUSED]
    unused.append(static / "locales")  # the theme's translations, used while building
    # what MathJax says aloud, in all languages but the book's own
    spoken = (static / "mathjax" / "sre" / "mathmaps").glob("*.json")
    unused += [path for path in spoken if path.stem not in ("base", "en")]
    unused += static.rglob("*.map")  # for people who debug the theme
    # the second format of a font, for browsers older than ten years
    unused += [path for path in static.rglob("*.ttf") if path.with_suffix(".woff2").is_file()]
    unused += _prune_icons(static)
    for path in unused:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _prune_icons(static: Path) -> list[Path]:
    """Leave only the icons that a page or a script names; return the fonts that none needs.

    Every page reads and runs the script of the icons, so this makes all of them quicker, too.
    """
    script = static / "scripts" / "fontawesome.js"
    texts = [path.read_text(encoding="utf-8") for path in static.parent.rglob("*.html")]
    texts += [p.read_text(encoding="utf-8") for p in static.rglob("*.js") if p != script]
    used = {name for text in texts for name in _CLASS.findall(text)}
    if script.is_file():
        script.write_text(without_icons(script.read_text(encoding="utf-8"), used), "utf-8")
    if any(map(_BRANDS.search, texts)):
        return []
    return list(static.rglob("fa-brands-*.woff2"))


def without_icons(script: str, used: set[str]) -> str:
    """Return Font Awesome's script with those icons only that have one of the names ``used``."""

    def kept(icon: re.Match[str]) -> str:
        names = {icon["quoted"] or icon["name"], *re.findall(r"[\w-]+", icon["others"])}
        return icon[0] if names & used else ""

    return _ICON.sub(kept, script)
