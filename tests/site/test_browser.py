"""The site in a real browser, in both themes, on a desk and on a phone."""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest

# Waits until MathJax, which the page loads at its end, has typeset everything.
READY = """async () => {
  if (document.querySelector('.math')) {
    while (!(window.MathJax && MathJax.startup && MathJax.startup.promise))
      await new Promise(done => setTimeout(done, 20));
    await MathJax.startup.promise;
    await window.companionFormulas;
  }
  await document.fonts.ready;
}"""
# Waits for what the window shows; the formulas far below may not be there yet.
OPEN = """async () => {
  if (document.querySelector('.math')) await MathJax.startup.promise;
  await document.fonts.ready;
}"""
# But for drawings that gave their place to what moves.
DRAWINGS = """() => [...document.querySelectorAll('.companion-drawing svg')].filter(
  svg => !svg.closest('.companion-turns, .tag_playground-paper')).map(svg => {
  const box = svg.getBoundingClientRect();
  const ink = svg.getBBox();
  return [box.width, box.height, ink.width, ink.height, getComputedStyle(svg).color];
})"""
MATHS = """() => [...document.querySelectorAll('article .math')].filter(
  m => !m.closest('.tag_playground-paper')).map(m => {
  const box = m.querySelector('mjx-container');
  const good = box && !box.querySelector('mjx-merror');
  return good ? [box.getBoundingClientRect().width, getComputedStyle(box).color] : [0, ''];
})"""
# Formulas from which a comma, a bracket or the rest of a word could be torn at the end of a line.
TORN = """() => [...document.querySelectorAll('article span.math')].filter(m => {
  const text = (node) => node?.nodeType === Node.TEXT_NODE ? node.data : '';
  const [before, after] = [text(m.previousSibling), text(m.nextSibling)];
  return (/[^\\s–—]$/.test(before) || /^[^\\s–—]/.test(after)) &&
    getComputedStyle(m.parentElement).whiteSpace !== 'nowrap';
}).map(m => m.parentElement.textContent.slice(0, 100))"""
# axe-core looks at every element, and most are the words of a program, the strokes of a drawing and
# the parts of a formula. A word of each colour on each ground will do; what is drawn is not read.
LIGHTER = """() => {
  for (const box of document.querySelectorAll('mjx-container')) box.replaceChildren('x');
  for (const ink of document.querySelectorAll('.companion-drawing svg > *')) ink.remove();
  const seen = new Set(), again = [];
  for (const word of document.querySelectorAll('pre span:not(:has(*))')) {
    const [own, block] = [word, word.closest('.highlight, pre')].map((e) => getComputedStyle(e));
    const look = own.color + own.backgroundColor + block.backgroundColor;
    if (seen.has(look)) again.push(word);
    seen.add(look);
  }
  for (const word of again) word.remove();  // at once: every change computes the styles anew
}"""
# The theme's script turns every icon into a drawing, soon after the page was loaded; what it lacks,
# it marks. These are still not drawn after ten seconds.
ICONS = """async () => {
  const missing = () => [...document.querySelectorAll('svg.svg-inline--fa, i[class*="fa-"]')]
    .filter(icon => !icon.querySelector('path[d]') || icon.matches('.fa-missing'));
  for (let left = 500; left && missing().length; left--)
    await new Promise(done => setTimeout(done, 20));
  return missing().map(icon => icon.outerHTML);
}"""
# What axe-core finds, but for what is minor.
AXE = """async () => {
  const result = await axe.run(document, {resultTypes: ["violations"]});
  return result.violations
    .filter((v) => ["serious", "critical"].includes(v.impact) || v.id === "heading-order")
    .map((v) => `${v.help}: ${v.nodes.map((n) => n.html.slice(0, 150)).join(" | ")}`);
}"""
ICON = "/favicon.svg"
LEFT = "net::ERR_ABORTED"  # a page was left before a font or its icon came
# The browser's hints about speed, which plotly's drawing in three dimensions brings about.
SPEED = ("GL Driver Message (OpenGL, Performance", "willReadFrequently")
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def no_page_is_left(browser: Any) -> Iterator[None]:
    """A page that a failed test left open would go on computing, and disturb the others."""
    yield
    for context in browser.contexts:
        context.close()


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    handler = partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def names(site: Path) -> list[str]:
    found = sorted(p.relative_to(site).as_posix() for p in (site / "book").rglob("*.html"))
    return [*found, "search.html", "genindex.html"]


def watched(context: Any) -> tuple[Any, list[str]]:
    """Return a page, and the list of what went wrong on it."""
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on(
        "requestfailed",
        lambda request: None if request.failure == LEFT else wrong.append(f"failed: {request.url}"),
    )
    page.on(
        "console",
        lambda message: (
            wrong.append(f"{message.type}: {message.text}")
            if message.type in ("error", "warning")
            and not any(hint in message.text for hint in SPEED)
            and not message.location["url"].endswith("/favicon.ico")
            else None
        ),
    )

    def asked(request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob", "file") and address.hostname != "127.0.0.1":
            wrong.append(f"asked: {request.url}")

    def answered(response: Any) -> None:
        if response.status >= 400 and not response.url.endswith("/favicon.ico"):
            wrong.append(f"{response.status}: {response.url}")

    page.on("request", asked)
    page.on("response", answered)
    return page, wrong


def stands_out(colour: str, theme: str) -> bool:
    """Whether a colour, as the browser writes it, has the contrast 4.5 with the theme's ground."""
    parts = [float(part) / 255 for part in colour.split("(")[1].split(")")[0].split(",")[:3]]
    light = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), light))
    ground = 1.0 if theme == "light" else 0.006  # of #121212
    dark, bright = sorted([luminance, ground])
    return (bright + 0.05) / (dark + 0.05) > 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page(site: Path, served: str, browser: Any, theme: str, width: int) -> None:
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 900})
    page, wrong = watched(context)
    drawings = formulas = 0
    for name in names(site):
        page.goto(f"{served}/{quote(name)}", wait_until="load")
        page.evaluate(READY)
        assert wrong == [], name
        assert page.evaluate(ICONS) == [], name
        assert page.evaluate(TORN) == [], name
        for box_width, box_height, ink_width, ink_height, colour in page.evaluate(DRAWINGS):
            drawings += 1
            assert min(box_width, box_height, ink_width, ink_height) > 50, name
            bright = sum(map(float, colour.split("(")[1].split(")")[0].split(",")[:3])) / 3
            assert bright > 150 if theme == "dark" else bright < 105, (name, colour)
        for formula_width, colour in page.evaluate(MATHS):
            formulas += 1
            assert formula_width > 0, name
            assert stands_out(colour, theme), (name, colour)
        assert page.evaluate(WIDER) <= 0, f"{name} is wider than the screen"
    assert drawings > 0
    assert formulas > 0
    context.close()


def test_every_page_opens_in_two_seconds(site: Path, served: str, browser: Any) -> None:
    """Its files pass a line of 10 Mbit/s in that time, and it needs less of a core.

    A clock would measure the machine and what else runs on it. Files count as a web server sends
    them, compressed. The browser's main thread reports the time that it computed; with others
    at work on a core's other half that may be double what a quiet machine takes, hence the four.
    """
    sizes: dict[str, int] = {}

    def size(address: str) -> int:
        path = unquote(urlsplit(address).path).lstrip("/")
        if path not in sizes:
            content = (site / path).read_bytes()
            packed = path.endswith((".woff2", ".png"))
            sizes[path] = len(content if packed else gzip.compress(content, 6))
        return sizes[path]

    for name in names(site):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page, asked = context.new_page(), []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        # what is done once the page is open, nobody waits for
        page.route("**/companion-math.js*", lambda route: route.fulfill(body=""))
        tools = context.new_cdp_session(page)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(f"{served}/{quote(name)}", wait_until="load")
        page.evaluate(OPEN)
        found = {m["name"]: m["value"] for m in tools.send("Performance.getMetrics")["metrics"]}
        files = {address for address in asked if address.startswith(served)}
        loaded = sum(size(address) for address in files if (not address.endswith(ICON)))
        assert loaded < 2.5e6, f"{name} loads {loaded / 1e6:.1f} MB"
        assert len(files) < 100, f"{name} loads {len(files)} files"
        assert 0 < found["TaskDuration"] < 4, f"{name} computes {found['TaskDuration']:.1f} s"
        context.close()


def test_the_front_door_leads_to_the_first_page(served: str, browser: Any) -> None:
    context = browser.new_context()
    page, _ = watched(context)
    page.goto(f"{served}/")
    page.wait_for_url("**/book/index.html")
    context.close()


def test_it_works_from_a_folder(site: Path, browser: Any) -> None:
    context = browser.new_context()
    page, wrong = watched(context)
    for name in names(site):
        if name.startswith("book/"):
            page.goto((site / name).as_uri(), wait_until="load")
            page.evaluate(READY)
            assert all(width > 0 for width, _ in page.evaluate(MATHS)), name
    assert wrong == []
    context.close()


def test_a_page_that_never_rests_shows_its_formulas(small_site: Path, browser: Any) -> None:
    """On a slow device what moves in the playground leaves no idle moment."""
    context = browser.new_context()
    page, wrong = watched(context)
    page.add_init_script("""window.requestIdleCallback = (action, {timeout} = {}) => {
      if (timeout) setTimeout(action, timeout);
    }""")
    page.goto((small_site / "book" / "playground.html").as_uri())
    page.wait_for_function(f"() => ({MATHS})().every(([width]) => width > 0)")
    assert len(page.evaluate(MATHS)) > 0
    assert wrong == []
    context.close()


def test_the_link_to_the_code_leads_to_the_cell(site: Path, served: str, browser: Any) -> None:
    context = browser.new_context()
    page, _ = watched(context)
    for name in names(site):
        page.goto(f"{served}/{quote(name)}")
        links = page.locator("figure.companion-figure .companion-links a")
        link = links.filter(has_text=re.compile(r"^\s*code\s*$")).first
        if link.count():
            target = link.get_attribute("href")
            assert target.startswith("#code-")
            assert page.locator(target).get_attribute("class").startswith("cell")
            break
    else:
        pytest.fail("no figure with a link to its code")
    context.close()


def test_figures_that_turn_or_slide(served: str, site: Path, browser: Any) -> None:
    place = ".companion-interactive"
    pages = [n for n in names(site) if 'class="companion-interactive"' in (site / n).read_text()]
    for name in pages:
        plain = browser.new_context(java_script_enabled=False)
        page = plain.new_page()
        page.goto(f"{served}/{quote(name)}")
        assert page.locator(f"figure:has(> {place}) > .companion-drawing").first.is_visible()
        plain.close()

        context = browser.new_context()
        page, wrong = watched(context)
        page.goto(f"{served}/{quote(name)}")
        figure = page.locator(f"figure:has(> {place})").first
        figure.scroll_into_view_if_needed()
        traces = json.loads(figure.locator("script").first.text_content())["data"]
        turns = any(trace["type"] == "scatter3d" for trace in traces)
        if turns and page.evaluate("() => !document.createElement('canvas').getContext('webgl')"):
            pytest.skip("this browser has no WebGL: the drawing stays")
        if turns:
            figure.locator("canvas").first.wait_for(timeout=60_000)
        slider, label = figure.locator("input[type=range]"), figure.locator("output")
        slider.wait_for(timeout=60_000)
        assert not figure.locator("> .companion-drawing").is_visible()
        before = label.inner_text()
        slider.focus()
        page.keyboard.press("End")
        assert label.inner_text() != before
        plot = figure.locator(".companion-interactive-plot")
        if turns:
            start = plot.evaluate("p => p._fullLayout.scene.camera.eye.x")
            plot.focus()
            page.keyboard.press("ArrowLeft")
            page.wait_for_function(
                "([p, x]) => p._fullLayout.scene.camera.eye.x !== x",
                arg=[plot.element_handle(), start],
            )
        page.emulate_media(media="print")
        assert figure.locator("> .companion-drawing").is_visible()
        assert wrong == []
        context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_bars_the_way(site: Path, served: str, browser: Any, theme: str) -> None:
    """axe-core finds nothing serious: names, contrast, order of headings, roles."""
    package = resources.files("axe_playwright_python")
    axe = (package / "axe.min.js").read_text(encoding="utf-8")
    context = browser.new_context(color_scheme=theme)
    page, _ = watched(context)
    found = []
    for name in names(site):
        page.goto(f"{served}/{quote(name)}", wait_until="load")
        page.evaluate(OPEN)
        page.evaluate(LIGHTER)
        page.evaluate(axe)
        for finding in page.evaluate(AXE):
            found.append(f"{name}: {finding}")
    assert found == []
    pale = '<p style="color: #999; background: #aaa">Can you read this?</p>'
    page.evaluate("(html) => document.body.insertAdjacentHTML('beforeend', html)", pale)
    assert page.evaluate(AXE) != []
    context.close()


def test_search_finds_a_word(site: Path, served: str, browser: Any) -> None:
    place = site / "book" / "stochastic" / "two_tokens.html"
    if "antipodal" not in place.read_text(encoding="utf-8"):
        pytest.skip("the small book's page of this name is empty")
    context = browser.new_context()
    page, wrong = watched(context)
    page.goto(f"{served}/search.html?q=antipodal")
    page.locator("#search-results a[href*='stochastic/two_tokens']").first.wait_for()
    assert wrong == []
    context.close()


def test_solutions_open(site: Path, served: str, browser: Any) -> None:
    context = browser.new_context()
    page, wrong = watched(context)
    opened = 0
    for name in names(site):
        if "solution dropdown" not in (site / name).read_text():
            continue
        page.goto(f"{served}/{quote(name)}")
        solution = page.locator("div.solution").first
        code = solution.locator("pre").first
        assert not code.is_visible(), "a solution is folded at first"
        solution.locator(".toggle-button, button, summary").first.click()
        code.wait_for(state="visible")
        opened += 1
    assert wrong == []
    assert opened or "part one" in str(names(site))
    context.close()
