"""The command ``python -m training``: makes the stored results.

Interrupted, it goes on where it stopped when started again.
"""

from pathlib import Path

import click

PROFILES = ("quick", "paper", "large")
IMAGES = ("digits", "mnist", "cifar10")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--profile", type=click.Choice(PROFILES), default="paper", show_default=True)
@click.option("--images", type=click.Choice(IMAGES), default="digits", show_default=True)
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the files.")
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    default=Path("_build/training"),
    show_default=True,
    help="Folder for finished pieces.",
)
@click.option("--output", type=click.Path(path_type=Path), help="File for the results.")
def main(profile: str, images: str, data: Path | None, work: Path, output: Path | None) -> None:
    """Tune, train and store all cases of a profile (paper: half an hour on one core)."""
    from training import data as source
    from training import results

    if images != "digits" and data is None:
        raise click.UsageError(f"--images {images} needs --data, the folder of its files")
    try:
        loaded = source.digits() if images == "digits" else getattr(source, images)(data)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    found = results.compute(profile, loaded, work / f"{profile}-{images}")
    path = output or work / f"{profile}-{images}.json"
    results.write(path, found)
    click.echo(f"The results are in {path}")


if __name__ == "__main__":
    main()
