"""Figures that turn: what the page gets, what is refused, where plotly comes to lie."""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import plotly.graph_objects as go
import pytest
from docutils import nodes

from companion import _interactive, figures, sphinx_ext

ALT = 'A "cloud" of dots <near> the pole.'


def cloud(**frame: Any) -> go.Figure:
    dots = go.Scatter3d(x=[0.0, 1.0], y=[0.0, 1.0], z=[0.0, 1.0], text=["</script><b>", "<!--"])
    return go.Figure([dots], frames=[go.Frame(data=[dots], **frame)] if frame else [])


def test_the_element_holds_the_figure_whatever_words_are_in_it() -> None:
    element = _interactive.element(cloud(name="t = 1"), "cloud", ALT)
    assert _interactive.ELEMENT.fullmatch(element)
    assert element.count("</script>") == 1
    assert "<!--" not in element
    assert "&quot;cloud&quot;" in element
    assert "&lt;near&gt;" in element
    data = element.split(">", 2)[2].removesuffix("</script></div>")
    found = json.loads(data.replace("<\\!--", "<!--"))
    assert found["data"][0]["text"] == ["</script><b>", "<!--"]
    assert found["frames"][0]["name"] == "t = 1"


def test_only_plotly_figures_of_a_size_a_reader_can_load() -> None:
    with pytest.raises(ValueError, match="'cloud': interactive must be a plotly figure"):
        _interactive.element({"data": []}, "cloud", ALT)
    with pytest.raises(ValueError, match="'cloud': every frame needs a name"):
        _interactive.element(cloud(layout={}), "cloud", ALT)
    many = go.Figure([go.Scatter(x=[k / 7 for k in range(70_000)])])
    with pytest.raises(ValueError, match="'cloud': its interactive twin takes"):
        _interactive.element(many, "cloud", ALT)


def test_a_figure_that_is_refused_is_not_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    figures._declared.clear()
    words = {"data": {"x": [1]}, "caption": "A cloud.", "alt": "A cloud."}
    with pytest.raises(ValueError, match="plotly"):
        figures.save(plt.figure(), "cloud", interactive="no figure", **words)
    figures.save(plt.figure(), "cloud", interactive=cloud(), **words)
    assert (tmp_path / "figures" / "cloud.svg").is_file()


@pytest.mark.parametrize("wanted", [True, False])
def test_plotly_lies_in_the_site_only_if_a_page_asks_for_it(tmp_path: Path, wanted: bool) -> None:
    static = tmp_path / "_static"
    static.mkdir()
    name = _interactive.SCRIPT if wanted else "other.js"
    (tmp_path / "page.html").write_text(f'<script src="_static/{name}"></script>')
    _interactive.install(static)
    assert (static / "plotly.min.js").is_file() == wanted


@pytest.mark.parametrize("turns", [True, False])
def test_the_script_is_loaded_by_pages_with_such_a_figure(turns: bool) -> None:
    class App:
        scripts: list[str] = []  # noqa: RUF012

        def add_js_file(self, name: str, **options: Any) -> None:
            self.scripts.append(name)

    app, page = App(), nodes.container()
    app.scripts = []
    page += nodes.raw("", "x", format="html", **({"companion_interactive": True} if turns else {}))
    sphinx_ext.add_interactive(app, "page", "page.html", {}, page)  # type: ignore[arg-type]
    sphinx_ext.add_interactive(app, "search", "search.html", {}, None)  # type: ignore[arg-type]
    assert app.scripts == ([_interactive.SCRIPT] if turns else [])
    assert (_interactive.STATIC / _interactive.SCRIPT).is_file()
