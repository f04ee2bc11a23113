"""The playground in a real browser: its numbers against tokensphere, and its manners.

Opened from a folder, as a reader of a copied site does.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from companion import figures
from tokensphere import attention, flow, layers, sphere, two_tokens

# The state reached when a preset's run has gone on for some units of its speed.
AFTER = """([name, units]) => {
  const run = new playground.Run(playground.preset(name));
  while (run.time < units * run.unit) run.step();
  const {n, d, beta} = run.state;
  return {
    sizes: playground.groupSizes(run.tokens, n, d, 0.2),
    overlaps: [...playground.overlapHistogram(run.tokens, n, d, 20)],
    energy: playground.relativeEnergy(run.tokens, n, d, beta),
  };
}"""
SCRIPT = Path(__file__).resolve().parents[2] / "book" / "_static" / "playground" / "playground.js"
CALL = """([name, x, n, d, ...rest]) => {
  const found = playground[name](Float64Array.from(x), n, d, ...rest);
  return typeof found === "number" ? found : [...found];
}"""


@pytest.fixture(scope="module")
def numbers(browser: Any) -> Iterator[Any]:
    """An empty page with the script: the mathematics alone."""
    page = browser.new_page()
    page.add_script_tag(path=SCRIPT)
    yield page
    page.close()


@pytest.fixture
def address(small_site: Path) -> str:
    return (small_site / "book" / "playground.html").as_uri()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open the playground in a fresh context; nothing may go wrong on any of its pages."""
    contexts, wrong = [], []

    def open_page(link: str = "", **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "requestfailed",
            lambda request: (
                None  # the page was left before it came
                if request.failure == "net::ERR_ABORTED"
                else wrong.append(f"failed: {request.url}")
            ),
        )
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text)
                if message.type in ("error", "warning")
                and "willReadFrequently" not in message.text  # a hint for our own reading
                else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                wrong.append(f"asked: {request.url}")
                if not request.url.startswith(("file:", "data:", "blob:"))
                else None
            ),
        )
        page.goto(address + link)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def still(visit: Callable[..., Any]) -> Any:
    """A page that starts paused."""
    return visit(reduced_motion="reduce")


def call(page: Any, name: str, x: np.ndarray, *rest: Any) -> Any:
    return np.array(page.evaluate(CALL, [name, x.ravel().tolist(), *x.shape, *rest]))


@pytest.mark.parametrize("d", [2, 3])
def test_velocity_and_energy(numbers: Any, d: int) -> None:
    x = sphere.uniform(9, d, rng=np.random.default_rng([1, d]))
    for beta in (0.0, 1.3, 9.0):
        for kind in ("softmax", "unnormalized"):
            found = call(numbers, "velocity", x, beta, kind).reshape(x.shape)
            expected = attention.velocity(x, beta, kind)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
        if beta:
            expected = attention.energy(x, beta)
            np.testing.assert_allclose(call(numbers, "energy", x, beta), expected, rtol=1e-12)
    together = np.tile(x[:1], (5, 1))
    assert call(numbers, "relativeEnergy", together, 4.0) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("d", [2, 3])
def test_layer_step(numbers: Any, d: int) -> None:
    rng = np.random.default_rng([2, d])
    x, beta, h = sphere.uniform(9, d, rng=rng), 2.5, 0.3
    y = attention.weights(x, beta) @ x
    for shape in ((d, d), (9, d, d)):
        v = rng.standard_normal(shape)
        moved = x + np.sqrt(h) * (v @ y[..., None])[..., 0]
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        found = call(numbers, "layerStep", x, beta, h, v.ravel().tolist()).reshape(x.shape)
        np.testing.assert_allclose(found, moved, rtol=0, atol=1e-12)
    # the package's own layer, whose V is the first thing that its generator draws
    v = np.random.default_rng(3).standard_normal((d, d))
    moved = layers.forward(x, beta, 1, horizon=h, rng=np.random.default_rng(3))
    found = call(numbers, "layerStep", x, beta, h, v.ravel().tolist()).reshape(x.shape)
    np.testing.assert_allclose(found, moved, rtol=0, atol=1e-12)


def test_the_flow_is_of_order_four(numbers: Any) -> None:
    x = sphere.uniform(9, 3, rng=np.random.default_rng(4))
    exact = flow.solve(x, 2.0, [0, 1.6], "softmax", rtol=1e-12).tokens[-1]
    errors = []
    for steps in (8, 16):
        moved = x
        for _ in range(steps):
            moved = call(numbers, "flowStep", moved, 2.0, "softmax", 1.6 / steps).reshape(x.shape)
        np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 1, atol=1e-14)
        errors.append(np.abs(moved - exact).max())
    assert 12 < errors[0] / errors[1] < 22
    assert errors[1] < 1e-5


def test_what_is_counted(numbers: Any) -> None:
    x = sphere.uniform(12, 3, rng=np.random.default_rng(5))
    r = (x @ x.T)[np.triu_indices(12, 1)]
    shares = np.histogram(r, bins=10, range=(-1, 1))[0] / r.size
    np.testing.assert_allclose(call(numbers, "overlapHistogram", x, 10), shares, atol=1e-12)
    angles = np.array([0.0, 0.1, 2.0, 2.15, 1.9, 4.0, -0.15])
    assert call(numbers, "groupSizes", sphere.from_angles(angles), 0.2).tolist() == [3, 3, 1]
    angle = (np.arange(1000) + 0.5) * np.pi / 1000
    for d, area in ((2, np.ones(1000)), (3, np.sin(angle))):  # the mean over the sphere
        weight = numbers.evaluate("d => playground.meanWeight(5, d)", d)
        expected = np.average(np.exp(5 * np.cos(angle)), weights=area)
        assert weight == pytest.approx(expected, rel=1e-4)


def test_chance(numbers: Any) -> None:
    drawn = "seed => [...playground.generator(seed).normals(10_000)]"
    z = np.array(numbers.evaluate(drawn, 7))
    assert stats.kstest(z, "norm").pvalue > 1e-3
    for lag in (1, 2, 3):
        assert abs(np.corrcoef(z[:-lag], z[lag:])[0, 1]) < 0.04
    other = np.array(numbers.evaluate(drawn, 8))
    assert abs(np.corrcoef(z, other)[0, 1]) < 0.04
    assert numbers.evaluate(drawn, 7) == z.tolist()
    for d in (2, 3):
        for start, most in (("even", 0.02), ("random", 0.2)):
            made = "([d, s]) => [...playground.startTokens(200, d, s, playground.generator(1))]"
            x = np.reshape(numbers.evaluate(made, [d, start]), (200, d))
            np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-14)
            assert np.linalg.norm(x.mean(axis=0)) < most


# Demonstrations: the seeds were chosen so that the run shows what the preset is named after.
def test_three_clusters(numbers: Any) -> None:
    found = numbers.evaluate(AFTER, ["three-clusters", 18])
    assert len(found["sizes"]) == 3
    assert min(found["sizes"]) > 60


def test_four_clusters(numbers: Any) -> None:
    sizes = numbers.evaluate(AFTER, ["four-clusters", 20])["sizes"]
    assert len(sizes) == 4
    assert min(sizes) > 40


def test_clusters_on_the_sphere_and_long_waits(numbers: Any) -> None:
    sizes = numbers.evaluate(AFTER, ["sphere-clusters", 14])["sizes"]
    assert 4 < len([size for size in sizes if size > 10]) < 12
    for units in (10, 20):  # a plateau
        found = numbers.evaluate(AFTER, ["waiting", units])
        assert len(found["sizes"]) == 4
    assert found["energy"] < 0.4


def test_single_cluster(numbers: Any) -> None:
    found = numbers.evaluate(AFTER, ["single-cluster", 10])
    assert found["sizes"] == [120]
    assert found["energy"] > 0.999


def test_antipodal_pair(numbers: Any) -> None:
    found = numbers.evaluate(AFTER, ["antipodal-pair", 12])
    assert len(found["sizes"]) == 2
    assert found["overlaps"][0] + found["overlaps"][-1] == pytest.approx(1)
    assert min(found["overlaps"][0], found["overlaps"][-1]) > 0.4


def test_pull_alone_undoes_what_noise_has_made(numbers: Any) -> None:
    sizes = numbers.evaluate("""() => ["common", "none"].map((noise) => {
      const run = new playground.Run(playground.preset("antipodal-pair"));
      while (run.time < 12 * run.unit) run.step();
      run.state = {...run.state, noise, beta: 1};
      const end = run.time + 40 * run.unit;
      while (run.time < end) run.step();
      return playground.groupSizes(run.tokens, run.state.n, run.state.d, 0.2);
    })""")
    assert [len(groups) for groups in sizes] == [2, 1]


def test_independent_noise_keeps_tokens_apart(numbers: Any) -> None:
    found = numbers.evaluate(AFTER, ["independent-noise", 6])
    assert len(found["sizes"]) > 20
    assert found["energy"] < 0.2


def test_two_tokens_meet_as_often_as_the_theory_says(numbers: Any) -> None:
    # every seed, not a chosen one; on the circle, where it is the angle between them over pi
    ends = numbers.evaluate("""() => Array.from({length: 400}, (_, seed) => {
      const run = new playground.Run({...playground.preset("two-tokens"), d: 2, seed});
      const r = () => run.tokens[0] * run.tokens[2] + run.tokens[1] * run.tokens[3];
      const before = r();
      for (let k = 0; k < 1280; k++) run.step();
      return [before, r()];
    })""")
    before, after = np.transpose(ends)
    chance = two_tokens.antipodal_probability(before, 3.0, 2)
    spread = np.sqrt((chance * (1 - chance)).sum())
    assert abs((after < 0).sum() - chance.sum()) < 3.3 * spread
    assert (np.abs(after) > 0.9).mean() > 0.95


def test_the_link_repeats_the_run(visit: Callable[..., Any], still: Any) -> None:
    five = """() => {
      const {run} = playground.view;
      for (let k = 0; k < 5; k++) run.step();
      return [...run.tokens];
    }"""
    for name, value in {"d": "3", "noise": "common", "start": "random"}.items():
        still.locator(f"select[name={name}]").select_option(value)
    for name, value in {"beta": "3.7", "n": "31", "speed": "0.45"}.items():
        still.locator(f"input[name={name}]").fill(value)
    still.get_by_role("button", name="New start").click()
    still.wait_for_function("location.hash.includes('seed=3')")  # the first preset's is 2
    state = still.evaluate("playground.view.run.state")
    assert (state["beta"], state["n"], state["d"], state["noise"]) == (3.7, 31, 3, "common")
    link = still.evaluate("location.hash")
    assert still.get_by_role("link", name="Link to these settings").get_attribute("href") == link
    other = visit(link, reduced_motion="reduce")
    assert other.evaluate("playground.view.run.state") == state
    assert other.evaluate(five) == still.evaluate(five)


def test_a_link_with_nonsense_is_mended(numbers: Any) -> None:
    link = "#beta=-3&n=1e9&d=7&noise=loud&seed=2.6&rule=softmax&start=<b>"
    expected = {"beta": 0, "n": 400, "seed": 3, "rule": "softmax"}
    state = numbers.evaluate("link => playground.fromLink(link)", link)
    assert state == numbers.evaluate("playground.preset()") | expected
    assert numbers.evaluate("playground.fromLink('#five-experiments')") is None


def test_links_in_the_text_lead_to_presets(still: Any) -> None:
    names = still.evaluate("Object.keys(playground.PRESETS)")
    links = still.locator("a[data-preset]")
    assert {link.get_attribute("data-preset") for link in links.all()} == set(names)
    link = still.locator("a[data-preset=antipodal-pair]")
    wanted = still.evaluate("playground.preset('antipodal-pair')")
    for _ in range(2):  # also when the address has it already
        link.click()
        still.wait_for_function("playground.view.run.state.noise === 'common'")
        assert still.evaluate("playground.view.run.state") == wanted
        assert still.locator(".playground-stage").is_visible()
        still.evaluate("playground.view.load(playground.preset('three-clusters'))")
    still.get_by_role("button", name="Single cluster").click()
    assert still.evaluate("playground.view.run.state.n") == 120


def test_keyboard_and_drag(still: Any) -> None:
    slider = still.get_by_label("Inverse temperature")
    slider.focus()
    still.keyboard.press("ArrowRight")
    assert still.locator("output[for=playground-beta]").inner_text() == "5.1"
    still.get_by_label("Space", exact=True).select_option("3")
    stage, eye = still.locator(".playground-stage"), "({...playground.view.eye})"
    stage.focus()
    assert stage.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    before = still.evaluate(eye)
    still.keyboard.press("ArrowRight")
    still.keyboard.press("ArrowDown")
    after = still.evaluate(eye)
    assert after["around"] < before["around"]
    assert after["tilt"] > before["tilt"]
    still.keyboard.press("Space")
    assert still.evaluate("playground.view.playing")
    still.keyboard.press("Space")
    box = stage.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    still.mouse.move(x, y)
    still.mouse.down()
    still.mouse.move(x + 60, y)
    still.mouse.up()
    assert still.evaluate(eye)["around"] < after["around"] - 0.1


def test_it_pauses_when_nobody_looks(visit: Callable[..., Any]) -> None:
    page = visit(viewport={"width": 390, "height": 800}, has_touch=True)
    time, running = "playground.view.run.time", "playground.view.running"
    page.locator(".playground-stage").scroll_into_view_if_needed()
    page.wait_for_function(f"{running} && {time} > 0")
    page.locator("#what-is-computed").scroll_into_view_if_needed()
    page.wait_for_function(f"!{running}")
    stopped = page.evaluate(time)
    page.wait_for_timeout(150)
    assert page.evaluate(time) == stopped
    page.locator(".playground-stage").scroll_into_view_if_needed()
    page.wait_for_function(f"{running} && {time} > {stopped}")
    hide = """hidden => {
      Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    assert not page.evaluate(running)
    stopped = page.evaluate(time)
    page.wait_for_timeout(150)
    assert page.evaluate(time) == stopped
    page.evaluate(hide, False)
    page.wait_for_function(f"{time} > {stopped}")
    page.get_by_role("button", name="Pause").tap()
    assert not page.evaluate(running)


def test_it_respects_reduced_motion(still: Any) -> None:
    still.wait_for_function("playground.view.onScreen")
    assert still.evaluate("playground.view.running") is False
    still.get_by_role("button", name="Four clusters").click()
    assert still.evaluate("playground.view.running") is False
    assert still.evaluate("playground.view.run.time") == 0
    still.get_by_role("button", name="Step").click()
    assert still.evaluate("playground.view.run.time") > 0
    still.get_by_role("button", name="Play", exact=True).click()
    still.wait_for_function("playground.view.running")
    still.emulate_media(reduced_motion="no-preference")
    still.wait_for_function("!playground.view.still.matches")
    still.emulate_media(reduced_motion="reduce")
    still.wait_for_function("!playground.view.running")


def test_everything_has_a_name(still: Any) -> None:
    unnamed = still.evaluate("""() => [...document.querySelectorAll(
        ".playground :is(input, select, button, a, canvas, [role=group], form)")].filter((e) => {
      const by = e.getAttribute("aria-labelledby");
      const name = e.getAttribute("aria-label") ?? (by && document.getElementById(by)?.textContent)
        ?? (e.labels?.length ? e.labels[0].textContent : e.textContent);
      return !name.trim();
    }).map((e) => e.outerHTML)""")
    assert unnamed == []
    told = still.locator(".playground-stage canvas").get_attribute("aria-label")
    assert told.startswith("240 tokens on the circle.")
    palette = still.evaluate("playground.PALETTE")
    assert palette == [colour for name, colour in figures.COLOURS.items() if name != "grey"]


def test_without_scripts_and_on_paper(browser: Any, address: str, still: Any) -> None:
    words, live = ".playground-still", ".playground-live"
    drawing = "#fig-playground-still svg"
    assert not still.locator(words).is_visible()
    assert not still.locator(drawing).is_visible()
    still.emulate_media(media="print")
    assert still.locator(words).is_visible()
    assert still.locator(drawing).is_visible()
    assert not still.locator(live).is_visible()
    plain = browser.new_context(java_script_enabled=False)
    page = plain.new_page()
    page.goto(address)
    assert page.locator(words).is_visible()
    assert page.locator(drawing).is_visible()
    assert page.locator(live).count() == 0
    plain.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_pictures_are_drawn(visit: Callable[..., Any], theme: str) -> None:
    page = visit(color_scheme=theme, reduced_motion="reduce")
    for d in (2, 3):
        page.get_by_label("Space", exact=True).select_option(str(d))
        inked = page.locator(".playground canvas").evaluate_all("""all => all.map((c) => {
          const {data} = c.getContext("2d").getImageData(0, 0, c.width, c.height);
          return data.filter((value, k) => k % 4 === 3 && value > 0).length / (c.width * c.height);
        })""")
        assert len(inked) == 3
        assert min(inked) > 0.005
    ink = page.evaluate("playground.view.ink")
    bright = sum(map(float, ink.split("(")[1].split(")")[0].split(",")[:3])) / 3
    assert bright > 150 if theme == "dark" else bright < 105


def test_a_link_may_name_a_preset(visit: Callable[..., Any]) -> None:
    for name in ("waiting", "two-tokens"):
        page = visit(f"#{name}", reduced_motion="reduce")
        state = page.evaluate("playground.view.run.state")
        assert state == page.evaluate(f"playground.preset('{name}')")
        page.wait_for_load_state("load")
        page.evaluate("() => MathJax.startup.promise")
        page.wait_for_timeout(200)
        top = page.locator(".playground-stage").bounding_box()["y"]
        assert 0 <= top < 500, "the page shows the stage, not the words that have the name"
        assert page.locator(f"a#{name}[data-preset={name}]").count() == 1


def test_every_preset_has_a_name_on_the_page(still: Any) -> None:
    for name in still.evaluate("Object.keys(playground.PRESETS)"):
        assert still.locator(f"a#{name}[data-preset={name}]").count() == 1


def test_links_in_the_book_lead_to_what_the_playground_knows(numbers: Any) -> None:
    book = SCRIPT.parents[2]
    found = {
        link
        for page in book.rglob("*.md")
        for link in re.findall(r"playground\.(?:html|md)#([^\"'\s>)]+)", page.read_text("utf-8"))
    }
    assert len(found) >= 6
    for link in found:
        if link in numbers.evaluate("Object.keys(playground.PRESETS)"):
            continue
        state = numbers.evaluate("link => playground.fromLink(link)", f"#{link}")
        said = dict(part.split("=") for part in link.split("&"))
        assert {name: str(state[name]) for name in said} == said, link
