"""The command line: `follmer demo`."""

from pathlib import Path
from typing import Annotated

import typer

from follmer.errors import FollmerError

app = typer.Typer(
    help="Bayesian posteriors by neural Schrödinger–Föllmer flows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def main() -> None:
    """Bayesian posteriors by neural Schrödinger–Föllmer flows."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("demo.png"),
    seed: Annotated[int, typer.Option(help="Seed of the random key.")] = 0,
) -> None:
    """Fit a banana-shaped density and a small regression, show how good the draws are."""
    from follmer.demo import run

    try:
        picture = run(out, seed)
    except FollmerError as error:
        typer.echo(f"follmer: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"\nDraws over contours: {picture.resolve()}")
