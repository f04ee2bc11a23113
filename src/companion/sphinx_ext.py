"""The companion's part in Sphinx: figures, claims, and a site that asks no other host.

Add ``companion.sphinx_ext`` to the extensions. MyST-NB finds ``MimeRenderer`` by itself.
"""

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from companion import _interactive, _lean, _math, glossary, slides
from companion._outputs import CLAIM, FIGURE, file_labels

_DRAWING = re.compile(r"<svg\b.*?</svg>", re.DOTALL)


class MimeRenderer:
    """Turns our outputs into document nodes, for MyST-NB."""

    mime_priority_overrides = (("*", CLAIM, None), ("*", FIGURE, None))

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[nodes.Node] | None:
        """Return the nodes for an output, or None to leave it to MyST-NB."""
        if data.mime_type in (CLAIM, FIGURE):
            return []  # for tools that read notebooks; the page shows the HTML beside it
        record = data.output_metadata.get("companion")
        if inline or data.mime_type != "text/html" or not isinstance(record, dict):
            return None
        drawings = _DRAWING.findall(data.string)
        if record["kind"] == "figure":
            return [_figure(renderer, data, record, drawings[0])]
        if record["kind"] == "again":
            classes = ["companion-gallery"] if record["gallery"] else []
            if record["inline"]:
                shown = [_drawing(drawing) for drawing in drawings]
            else:
                shown = [_file(figure) for figure in record["figures"]]
            pairs = zip(record["figures"], shown, strict=True)
            gallery = record["gallery"]
            again = [node for pair in pairs for node in _again(renderer, data, *pair, gallery)]
            return [nodes.container("", *again, classes=classes)]
        # Without MyST-NB's own class, whose background in the dark theme is a light one.
        return [nodes.raw("", data.string, format="html")]


def _figure(renderer: Any, data: Any, record: dict[str, Any], drawing: str) -> nodes.figure:
    """Build a numbered figure, so that ``numref`` knows it."""
    figure = nodes.figure(classes=["companion-figure"])
    figure.source, figure.line = renderer.source, data.line
    figure["names"].append(f"fig-{record['id']}")
    renderer.renderer.document.note_explicit_target(figure, figure)
    caption = nodes.caption(record["caption"])
    caption.source, caption.line = renderer.source, data.line
    code = nodes.reference("", "code", refid=f"code-{record['id']}", internal=True)
    figure += _drawing(drawing)
    for turning in _interactive.ELEMENT.findall(data.string):
        figure += nodes.raw("", turning, format="html", companion_interactive=True)
    figure += _parsed(renderer, data, record["caption"], caption)
    figure += nodes.legend("", _links(record, code))
    return figure


def _again(
    renderer: Any, data: Any, record: dict[str, Any], drawing: nodes.raw, gallery: bool
) -> tuple[nodes.Node, ...]:
    """Build a figure without a number: it has one where it was made."""
    chapter = nodes.reference("", "from the chapter", refuri=record["link"], internal=True)
    return (
        nodes.raw("", '<figure class="companion-figure">', format="html"),
        drawing,
        nodes.raw("", "<figcaption>", format="html"),
        _parsed(renderer, data, record["caption"], nodes.paragraph(record["caption"])),
        _links(record, chapter),
        *_claim_links(record),
        *([_command(record)] if gallery else ()),
        nodes.raw("", "</figcaption></figure>", format="html"),
    )


def _claim_links(record: dict[str, Any]) -> list[nodes.Node]:
    """Link to the claims that are checked where the figure is made."""
    if not record["claims"]:
        return []
    line = nodes.paragraph("", "Claims there: ", classes=["companion-links"])
    for number, (id, link) in enumerate(record["claims"].items()):
        line += [nodes.Text(", ")] if number else []
        line += nodes.reference("", id, refuri=link, internal=True)
    return [line]


def _command(record: dict[str, Any]) -> nodes.paragraph:
    """Say how to make the figure again."""
    command = f"companion run {record['id']}"
    line = nodes.paragraph("", "Again: ", classes=["companion-links"])
    line += nodes.literal(command, command)
    return line


def _drawing(svg: str) -> nodes.raw:
    return nodes.raw("", f'<div class="companion-drawing">{svg}</div>', format="html")


def _file(record: dict[str, Any]) -> nodes.raw:
    """Show the figure's file; its address is completed when the page is known."""
    image = (
        f'<div class="companion-drawing"><img src="{{to_root}}_static/figures/{record["id"]}.svg" '
        f'alt="{html.escape(record["alt"])}" loading="lazy"></div>'
    )
    return nodes.raw("", image, format="html", companion_file=True)


def _parsed(renderer: Any, data: Any, text: str, into: Any) -> Any:
    """Read MyST text into a node; returns the node."""
    with renderer.renderer.current_node_context(into):
        renderer.renderer.nested_render_text(text, data.line or 0, inline=True)
    return into


def _links(record: dict[str, Any], first: nodes.reference) -> nodes.paragraph:
    line = nodes.paragraph("", "", first, classes=["companion-links"])
    for label, name in file_labels(record):
        line += nodes.Text(" · ")
        line += nodes.reference(
            "", label, refuri=f"_static/figures/{name}", companion_file=True, internal=True
        )
    return line


class FileLinks(SphinxPostTransform):
    """Make links to figure files relative to the page that they end up on."""

    default_priority = 5
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Run the transform."""
        builder = self.app.builder
        # singlehtml puts every page into the first one.
        page = self.app.config.root_doc if builder.name == "singlehtml" else self.env.docname
        depth = builder.get_target_uri(page).split("#")[0].count("/")
        for link in list(self.document.findall(nodes.reference)):
            if link.get("companion_file"):
                link["refuri"] = "../" * depth + link["refuri"]
        for image in list(self.document.findall(nodes.raw)):
            if image.get("companion_file"):
                image.children = [nodes.Text(image.astext().replace("{to_root}", "../" * depth))]


def name_code_cells(app: Sphinx, document: nodes.document) -> None:
    """Give the cell that made a figure a name, for the figure's link to its code."""
    for cell in list(document.findall(nodes.container)):
        if cell.get("nb_element") != "cell_code":
            continue
        for figure in cell.findall(nodes.figure):
            for name in figure["names"]:
                if name.startswith("fig-"):
                    cell["ids"].append(f"code-{name.removeprefix('fig-')}")


def drop_thebe(app: Sphinx, page: str, template: str, context: Any, doctree: Any) -> None:
    """Remove the scripts of thebe, which is off: it names another host, and twice at that."""
    kept = []
    for script in context.get("script_files", []):
        body = getattr(script, "attributes", {}).get("body") or ""
        name = str(getattr(script, "filename", script) or "")
        if "THEBE_JS_URL" not in body and "thebe" not in name:
            kept.append(script)
    context["script_files"] = kept


def add_interactive(app: Sphinx, page: str, template: str, context: Any, doctree: Any) -> None:
    """Load the script for figures that turn, on the pages that have one."""
    drawings = doctree.findall(nodes.raw) if doctree is not None else ()
    if any(node.get("companion_interactive") for node in drawings):
        app.add_js_file(_interactive.SCRIPT, loading_method="defer")


def finish(app: Sphinx, error: Exception | None) -> None:
    """Put the figure files into the site, and take out what nobody loads."""
    if error is not None or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    made = Path(app.srcdir) / app.config.companion_figures
    if made.is_dir():
        shutil.copytree(made, static / "figures", dirs_exist_ok=True)
    _interactive.install(static)
    slides.install(Path(app.outdir))
    _lean.prune(static)
    for path in (Path(app.outdir) / "_sources").rglob("*.ipynb"):
        _without_outputs(path)
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        # docutils calls it a list, whose entries then would have to be list items
        mended = text.replace(
            '<div role="list" class="citation-list">', '<div class="citation-list">'
        )
        if mended != text:
            path.write_text(mended, encoding="utf-8")


def _without_outputs(path: Path) -> None:
    """Make a notebook that readers download small: what it showed is in the page, and it runs."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False), encoding="utf-8")


def choose_theme(app: Sphinx, config: Any) -> None:
    """Say that the reader's own preference decides; the theme complains if nobody says it."""
    config.html_context.setdefault("default_mode", "auto")


def add_static(app: Sphinx, config: Any) -> None:
    """Give the site the companion's own scripts."""
    config.mathjax3_config = _math.settings(config.mathjax3_config)
    config.html_static_path.append(str(_interactive.STATIC))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_config_value("companion_figures", "_build/figures", "html")
    app.setup_extension("sphinx.ext.mathjax")
    app.setup_extension("sphinx-mathjax-offline")
    app.add_post_transform(FileLinks)
    glossary.setup(app)
    _math.setup(app)
    app.connect("config-inited", choose_theme)
    app.connect("config-inited", add_static)
    app.connect("doctree-read", name_code_cells)
    app.connect("html-page-context", add_interactive)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
