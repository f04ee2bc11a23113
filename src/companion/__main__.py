"""The command: ``python -m companion``, also installed as ``companion``.

Exit codes: 0 fine; 1 a chapter, the site or a claim failed; 2 something to mend, said in one
line; 130 stopped with Ctrl-C. What a command needs is imported when it runs, so that a build
with nothing to do is quick.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import click

from companion import _session
from companion.book import find_root, open_book
from companion.errors import Failed, Problem

_PROFILE = click.option(
    "--profile",
    default="paper",
    metavar="NAME",
    show_default=True,
    help="paper: the papers' own sizes; quick: for tests; large: needs many cores.",
)
_WORKERS = click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes for the ensembles of a chapter.  [default: 1]",
)
_SCHEDULER = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="A Dask scheduler for the ensembles, such as tcp://10.0.0.1:8786.",
)
_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long one cell may take, instead of what the chapters say.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The book's folder; else the next one upwards with a _toc.yml.",
)
@click.pass_context
def cli(context: click.Context, root: Path | None) -> None:
    """Execute, check, build and take apart the book."""
    context.obj = root  # looked for by the commands, so that their --help works anywhere


@cli.command()
@_PROFILE
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Chapters at once.")
@click.option("--force", is_flag=True, help="Execute everything again, changed or not.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first chapter that fails.")
@_WORKERS
@_SCHEDULER
@_TIMEOUT
@click.pass_obj
def build(
    given: Path | None, /, workers: int | None, scheduler: str | None, **options: Any
) -> None:
    """Execute the chapters that changed and build the site."""
    from companion.build import build

    _session.compute_on(workers, scheduler)
    page = build(find_root(given), **options)
    click.echo(f"The book is at {page}")


@cli.command()
@click.argument("chapter")
@click.option("-p", "values", nargs=2, multiple=True, metavar="NAME VALUE", help="A parameter.")
@_PROFILE
@click.option("--output", type=click.Path(path_type=Path), metavar="FOLDER", help="For results.")
@_WORKERS
@_SCHEDULER
@_TIMEOUT
@click.pass_obj
def run(
    given: Path | None,
    /,
    chapter: str,
    values: tuple[tuple[str, str], ...],
    workers: int | None,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Execute one chapter with your own parameters.

    CHAPTER is its name, or that of a figure or a claim in it. Writes the executed notebook, the
    figures with their data, and the claims into a folder; the book itself stays as it is.
    """
    from companion.run import run
    from companion.source import value_from_text

    _session.compute_on(workers, scheduler)
    own = {name: value_from_text(value) for name, value in values}
    place, claims = run(find_root(given), chapter, values=own, **options)
    for claim in claims:
        click.echo(f"{claim['status']:<20} {claim['id']}: {claim['verdict']}")
    click.echo(f"The results are in {place}")
    if (figure := place / "figures" / f"{chapter}.svg").is_file():
        click.echo(f"The figure is {figure}")


@cli.command("list")
@click.pass_obj
def list_(given: Path | None) -> None:
    """Show the chapters, their parameters, figures, claims, and when they were executed."""
    from companion.report import chapters_as_text

    click.echo(chapters_as_text(open_book(find_root(given))))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="As data instead of text.")
@click.pass_obj
def claims(given: Path | None, as_json: bool) -> int:
    """Show the ledger of claims; exit code 1 if one fails that the text does not know of."""
    import json

    from companion import report

    book = open_book(find_root(given))
    found = report.executed(book)
    rows = report.claims_as_json(found)
    if as_json:
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(report.claims_as_text(found))
    for line in report.warnings(book, found):
        click.echo(f"companion: {line}", err=True)
    failed = [r["id"] for r in rows if r["status"] == "not reproduced" and not r["finding"]]
    if failed:
        click.echo(f"companion: not reproduced: {', '.join(failed)}", err=True)
    return 1 if failed else 0


@cli.command()
@click.option(
    "--format",
    "kinds",
    type=click.Choice(["svg", "pdf", "png"]),
    multiple=True,
    default=("svg",),
    show_default=True,
    help="May be given several times.",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="FOLDER")
@click.pass_obj
def figures(given: Path | None, kinds: tuple[str, ...], output: Path | None) -> None:
    """Copy every figure with its data, and a manifest that says where each comes from."""
    from companion import report, store

    root = find_root(given)
    place = output or store.build_folder(root) / "figures-copied"
    number = report.copy_figures(open_book(root), list(kinds), place)
    click.echo(f"{number} figure(s) with their data are in {place}")


@cli.command()
@click.option("--solutions/--no-solutions", default=True, show_default=True)
@click.option("--executed", is_flag=True, help="Those of the last build, with all results.")
@click.option("--repository", metavar="URL", help="A first cell installs the book from there.")
@click.option("--output", type=click.Path(path_type=Path), metavar="FOLDER")
@click.pass_obj
def notebooks(given: Path | None, /, output: Path | None, **options: Any) -> None:
    """Write the chapters as plain .ipynb, with or without the solutions of the exercises."""
    from companion import store
    from companion.notebooks import write_notebooks

    root = find_root(given)
    place = output or store.build_folder(root) / "notebooks"
    written = write_notebooks(open_book(root), place, **options)
    click.echo(f"{len(written)} notebook(s) are in {place}")


@cli.command()
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE")
@click.pass_obj
def pdf(given: Path | None, output: Path | None) -> None:
    """Print the whole built book into one PDF, with Chromium."""
    from companion import store
    from companion.pdf import write_pdf

    root = find_root(given)
    click.echo("printing (a minute or two) ...")
    place = write_pdf(open_book(root), output or store.build_folder(root) / "book.pdf")
    click.echo(f"The book is in {place}")


@cli.command()
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FOLDER", help="Copy them, to carry away."
)
@click.pass_obj
def slides(given: Path | None, output: Path | None) -> None:
    """Say where the built site's slides are, or copy them with all they need."""
    from companion.slides import write_slides

    for place in write_slides(open_book(find_root(given)), output):
        click.echo(f"Slides: {place}  (S: the speaker's view, with notes)")


@cli.command()
@click.option("--port", type=int, default=8000, show_default=True, help="0 picks a free one.")
@click.pass_obj
def serve(given: Path | None, port: int) -> None:
    """Show the built site on this machine; Ctrl-C ends it."""
    from companion.serve import server

    with server(find_root(given), port) as running:
        click.echo(f"The book is at http://127.0.0.1:{running.server_address[1]}/  (Ctrl-C ends)")
        sys.stdout.flush()
        running.serve_forever()


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit; whatever goes wrong is told in lines, not in a traceback."""
    try:
        code = cli.main(arguments, prog_name="companion", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        _end("stopped", 130)
    except click.ClickException as error:
        _end(error.format_message(), 2)
    except Problem as error:
        _end(str(error), 2)
    except Failed as error:
        _end(str(error), 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _end("the disk is full", 2)
        where = f"{error.filename}: " if error.filename else ""
        _end(f"{where}{error.strerror or error}", 2)
    sys.exit(code if isinstance(code, int) else 0)


def _end(message: str, code: int) -> None:
    click.echo(f"companion: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
