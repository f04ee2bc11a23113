import csv
import hashlib
import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from companion import _session, _style, figures
from companion._outputs import CLAIM, FIGURE, figures_with_claims
from companion._svg import compact, inline


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "figures"


def draw() -> Any:
    fig, axes = plt.subplots()
    axes.plot([0, 1, 2], [0, 1, 4], "o-", label="curve")
    axes.fill_between([0, 1], [0, 0], [1, 1], color="white", hatch="//")
    axes.set_xlabel("β")
    axes.legend()
    return fig


def save(id: str = "curve", fig: Any = None, **changes: Any) -> None:
    options: dict[str, Any] = {
        "data": {"x": [0, 1, 2], "y": [0, 1, 4]},
        "caption": "A curve.",
        "alt": "A curve that rises.",
    } | changes
    figures.save(fig if fig is not None else draw(), id, **options)


def test_all_files_are_there_with_their_hashes(folder: Path) -> None:
    save(seed=[3, np.int64(4)], parameters={"beta": np.float64(5)})
    record = json.loads((folder / "curve.json").read_text())
    assert set(record["files"]) == {"curve.svg", "curve.pdf", "curve.png", "curve.csv"}
    for name, digest in record["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert record["seed"] == [3, 4]
    assert record["parameters"] == {"beta": 5.0}
    assert record["versions"]["numpy"] == np.__version__


def test_the_same_figure_gives_the_same_bytes(folder: Path) -> None:
    save()
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    figures._declared.clear()
    save()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_the_figure_is_closed(folder: Path) -> None:
    fig = draw()
    save(fig=fig)
    assert fig.number not in plt.get_fignums()


def test_data_come_back_to_eight_digits(folder: Path) -> None:
    values = np.array([0.1, 1 / 3, 1e-300, 12345678.9, -np.inf])
    save(data={"x": values, "n": np.array([1, 2]), "name": ["a, b"]})
    rows = list(csv.DictReader((folder / "curve.csv").read_text("utf-8").splitlines()))
    np.testing.assert_allclose([float(row["x"]) for row in rows], values, rtol=5e-8)
    assert [row["x"] for row in rows][:2] == ["0.1", "0.33333333"]
    assert [row["n"] for row in rows] == ["1", "2", "", "", ""]
    assert rows[0]["name"] == "a, b"


def test_several_tables(folder: Path) -> None:
    save(data={"one": {"x": [1]}, "two": {"x": [1, 2]}})
    assert (folder / "curve.one.csv").read_text() == "x\n1\n"
    assert (folder / "curve.two.csv").read_text() == "x\n1\n2\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"caption": ""}, "caption"),
        ({"alt": " "}, "alt"),
        ({"alt": r"$\beta$"}, "read aloud"),
        ({"data": {}}, "data"),
        ({"data": [1, 2]}, "data"),
        ({"data": {"x": []}}, "no values"),
        ({"data": {"x": np.zeros((2, 2))}}, "one dimension"),
        ({"data": {"x": [1j]}}, "numbers or words"),
        ({"data": {"x": [1], "t": {"y": [1]}}}, "mixes"),
        ({"data": {"x": np.full(500_000, 1 / 3)}}, "store what is drawn"),
    ],
)
def test_what_makes_no_sense_is_refused(folder: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        save(**change)
    assert not folder.exists()


def test_the_same_id_twice_is_refused(folder: Path) -> None:
    save()
    with pytest.raises(ValueError, match="twice"):
        save()


def test_the_copy_in_the_page(folder: Path) -> None:
    save()
    saved = (folder / "curve.svg").read_text()
    assert _style.INK in saved
    one, two = inline(saved, "one", 'say "yes" & go'), inline(saved, "two", "no")
    assert _style.INK not in one
    assert one.count("#ffffff") == saved.count("#ffffff") > 0, "what is white stands on a colour"
    assert "currentColor" in one
    root = ElementTree.fromstring(one)  # well formed
    assert root.get("aria-label") == 'say "yes" & go'
    assert root.get("role") == "img"
    assert root.get("viewBox")
    assert root.get("width") is None
    names = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, two)]
    assert names[0]
    assert not names[0] & names[1]
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', one))
    assert {a or b for a, b in used} == names[0]


def test_a_drawing_keeps_hundredths_of_a_point_and_no_more() -> None:
    svg = (
        '<svg viewBox="0 0 9 9"><metadata>when</metadata><!-- note -->\n'
        '  <path d="M 1.23456 -0.001234 L 100.5 7" transform="scale(0.015625)"/></svg>'
    )
    assert compact(svg) == (
        '<svg viewBox="0 0 9 9">\n<path d="M 1.23 0 L 100.5 7" transform="scale(0.015625)"/></svg>'
    )


def test_the_page_copy_shows_no_background(folder: Path) -> None:
    fig, axes = plt.subplots()
    axes.plot([0, 1])
    save(fig=fig)
    assert "#ffffff" not in (folder / "curve.svg").read_text()


def test_a_readers_own_style_does_not_matter() -> None:
    mpl.rcParams["axes.facecolor"] = "red"
    figures.style()
    assert mpl.rcParams["axes.facecolor"] == "white"


def test_before_the_first_build_a_sentence(folder: Path) -> None:
    for shown in (figures.show("nowhere"), figures.gallery()):
        bundle, _ = shown._repr_mimebundle_()
        assert "make book" in bundle["text/html"]


# Colours. Linear RGB, contrast as in WCAG; vision deficiency as in Machado et al. 2009.
SIGHT = {
    "usual": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def linear(colour: str) -> np.ndarray:
    rgb = np.array(mpl.colors.to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, sight: str) -> np.ndarray:
    rgb = np.clip(np.array(SIGHT[sight]) @ linear(colour), 0, 1)
    to_xyz = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
    xyz = np.array(to_xyz) @ rgb / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("colour", [*_style.COLOURS.values(), *_style.shades(17)])
@pytest.mark.parametrize("page", ["#ffffff", _style.DARK_PAGE])
def test_every_colour_shows_on_both_pages(colour: str, page: str) -> None:
    assert contrast(colour, page) >= 3


@pytest.mark.parametrize("sight", SIGHT)
def test_the_colours_stay_apart_for_every_eye(sight: str) -> None:
    cycle = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    assert len(cycle) >= 6
    for one, other in itertools.combinations(cycle, 2):
        assert np.linalg.norm(lab(one, sight) - lab(other, sight)) > 10, (one, other)


def test_the_measure_of_colours_can_fail() -> None:
    assert contrast("#cccccc", "#ffffff") < 3
    assert np.linalg.norm(lab("#009e73", "deutan") - lab("#0a9e70", "deutan")) < 10


def test_the_quick_profile_makes_drawings_for_the_page_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(_session.PROFILE, "quick")
    save()
    record = json.loads((folder / "curve.json").read_text())
    assert set(record["files"]) == {"curve.svg", "curve.csv"}


def test_a_figure_goes_with_the_claims_of_its_section() -> None:
    def code(mime: str, *ids: str) -> Any:
        outputs = [{"data": {mime: {"id": id}}} for id in ids] + [{"data": {"text/plain": "1"}}]
        return SimpleNamespace(cell_type="code", get={"outputs": outputs}.get)

    def words(text: str) -> Any:
        return SimpleNamespace(cell_type="markdown", source=text, get={}.get)

    cells = [
        *(code(CLAIM, "zero"), words("# Title"), code(FIGURE, "a"), code(CLAIM, "one", "two")),
        *(words("### Deeper"), code(FIGURE, "b"), words("```\n# no heading\n```\n")),
        *(code(CLAIM, "three"), words("Text.\n\n## Next"), code(FIGURE, "c"), code(FIGURE, "a")),
        *(words("## Last"), code(CLAIM, "four")),
    ]
    found = figures_with_claims(SimpleNamespace(cells=cells))
    together = ["one", "two", "three"]
    assert {figure["id"]: figure["claims"] for figure in found} == {
        "a": together,
        "b": together,
        "c": [],
    }
