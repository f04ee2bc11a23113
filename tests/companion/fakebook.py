"""A small book in a temporary folder, to be broken in every way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

HEADER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
{companion}---

"""


def header(companion: str = "") -> str:
    """Return the YAML header; ``companion`` is the inside of that key, in YAML."""
    inside = "".join(f"  {line}\n" for line in companion.splitlines())
    return HEADER.replace("{companion}", f"companion:\n{inside}" if inside else "")


def cell(code: str, tags: str = "") -> str:
    """Return a code cell."""
    options = f":tags: [{tags}]\n\n" if tags else ""
    return f"```{{code-cell}} ipython3\n{options}{code}\n```\n\n"


PARAMETERS = """n = 2 * 10**1
power = 2"""

FIGURE = """import numpy as np
import matplotlib.pyplot as plt
from companion import claims, figures

rng = np.random.default_rng(0)
x = np.linspace(0.0, 1.0, n)
fig, axes = plt.subplots()
axes.plot(x, x**power, label="curve")
axes.plot(x, x, label="line")
axes.set_xlabel("x")
axes.legend()
figures.save(
    fig,
    "parabola",
    data={"x": x, "y": x**power},
    caption="The curve $y = x^2$ beside a line. It is *below* it.",
    alt="A parabola below a straight line.",
    seed=0,
)"""

CLAIM = """claims.check(
    "mean-of-square",
    "The mean of x² over the unit interval is 1/3 < 1.",
    source="derived here",
    measured=np.mean(((np.arange(n) + 0.5) / n) ** power),
    expected=1 / 3,
    tolerance=1e-2,
    second_method="integral of x²",
    control=claims.Control("the mean of x instead", measured=0.5),
)"""

DEMO = f"""# A demonstration

Some text with mathematics, $x^2$, and a look at {{numref}}`fig-parabola`.
Then there is the [first page](../index.md#more).

{cell(PARAMETERS, "parameters")}## The picture

{cell(FIGURE)}## The check

{cell(CLAIM)}"""

LEDGER = """# Ledger

All claims, for instance of [a chapter](part%20one/demo.md), by its [picture][there].

[there]: <part%20one/demo.md#the-picture>

## Table

```{code-cell} ipython3
:tags: [remove-input]

from companion import figures, ledger

ledger.table()
```

```{code-cell} ipython3
:tags: [remove-input]

ledger.summary()
```

```{code-cell} ipython3
:tags: [remove-input]

figures.show("parabola")
```

```{code-cell} ipython3
:tags: [remove-input]

figures.gallery()
```

```{code-cell} ipython3
:tags: [remove-input]

from companion import status

status.table()
```
"""

TALK = """# A talk

Welcome.

:::{admonition} 1 minute
:class: say
Hello.
:::

## A parabola, $x^2$

Of [a chapter](../part%20one/demo.md):

```{code-cell} ipython3
:tags: [remove-input]

from companion import figures, ledger

figures.show("parabola", inline=False)
```

:::{admonition} 2 minutes
:class: say
This is it.
:::

## A claim

```{code-cell} ipython3
:tags: [remove-input]

ledger.claim("mean-of-square")
```

:::{admonition} 2 minutes
:class: say
That holds.
:::
"""

CONFIG = """title: A small book
author: nobody
only_build_toc_files: true
exclude_patterns: [_build]
execute: {execute_notebooks: force, raise_on_error: true}
repository: {url: ""}
sphinx:
  recursive_update: true
  extra_extensions: [sphinx_exercise, companion.sphinx_ext]
  config:
    html_static_path: [book/_static]
    html_css_files: [companion.css]
    html_theme_options: {navbar_persistent: []}
    nb_ipywidgets_js: {}
    myst_heading_anchors: 3
    numfig_format: {figure: "Figure %s"}
"""


class FakeBook:
    """A book folder with a front page; ``add`` gives it chapters."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names: list[str] = []
        (root / "book" / "_static").mkdir(parents=True)
        shutil.copy(REPOSITORY / "book/_static/companion.css", root / "book" / "_static")
        (root / "src").mkdir()
        (root / "src" / "model.py").write_text("SLOPE = 2\n")
        (root / "_config.yml").write_text(CONFIG)
        (root / "book" / "index.md").write_text("# A small book\n\nWelcome.\n\n## More\n\nText.\n")
        self._write_toc()

    def add(self, name: str, text: str, companion: str = "", *, plain: bool = False) -> Path:
        """Write a chapter (``plain``: a page without a header) and list it in the contents."""
        path = self.root / "book" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if plain else header(companion) + text, encoding="utf-8")
        if name not in self.names:
            self.names.append(name)
            self._write_toc()
        return path

    def _write_toc(self) -> None:
        lines = ["format: jb-book", "root: book/index"]
        lines += ["chapters:"] if self.names else []
        lines += [f'- file: "book/{name}"' for name in self.names]
        (self.root / "_toc.yml").write_text("\n".join(lines) + "\n")

    def command(self, *arguments: str) -> list[str]:
        """Return the command line for this book."""
        return [
            sys.executable,
            "-W",
            "error",
            "-m",
            "companion",
            "--root",
            str(self.root),
            *arguments,
        ]

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start the command and return the process."""
        return subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "100"},
        )

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the command to its end."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)
