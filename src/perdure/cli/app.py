"""The commands."""

from typing import Annotated

import typer

from perdure import __version__
from perdure.cli.serve import serve

app = typer.Typer(
    name="perdure",
    help="A local-first, durable AI response service.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A local-first, durable AI response service."""
