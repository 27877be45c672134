"""The command `perdure`."""

import sys

import typer

from perdure import __version__
from perdure.cli.serve import serve
from perdure.domain.errors import PerdureError

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


def main() -> None:
    """Run the command; trouble that has a name is one line and exit code 1."""
    try:
        app()
    except PerdureError as refusal:
        print(f"perdure: {refusal.message}", file=sys.stderr)
        sys.exit(1)
