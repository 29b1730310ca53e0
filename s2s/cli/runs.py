"""Command `s2s runs`: list runs with their scores."""

import csv
import io
import sys
from pathlib import Path

import click

from s2s.cli import options
from s2s.cli.lines import check_output
from s2s.errors import UserError, format_message, printable
from s2s.files import write_atomically


@options.command(epilog=options.examples("s2s runs", "s2s runs runs --csv scores.csv"))
@click.argument("folder", type=options.FILE, default="runs")
@click.option("--csv", "file", type=options.FILE, help="Also write the table to this file, with a column per score.")
def runs(folder: Path, file: Path | None) -> None:
    """List the runs in FOLDER with their test scores; default: runs.

    Of runs that differ only in their seeds, the mean of each score and its 95 % interval over seeds follow. A damaged
    run is left out with a message; the exit status is then 1.
    """
    from s2s.run.listing import format_runs, list_runs, rows

    check_output(file, "--csv")
    errors = list[UserError]()
    found = list_runs(folder, errors.append)
    for error in errors:
        click.echo(format_message(str(error)), err=True)
    if file and not found:
        raise UserError(
            f"there are no runs in {folder}, so nothing was written", f"--csv {file}", "name another folder"
        )
    click.echo(printable(format_runs(found) if found else f"there are no runs in {folder}"))
    if file:
        table, text = rows(found), io.StringIO()
        writer = csv.DictWriter(text, list(dict.fromkeys(key for row in table for key in row)))
        writer.writeheader()
        writer.writerows(table)
        write_atomically(file, text.getvalue(), follow=True)
    if errors:
        sys.exit(1)
