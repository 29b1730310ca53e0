"""Arguments and options that several commands have."""

from functools import partial
from pathlib import Path

import click

FILE = click.Path(path_type=Path)
run = click.argument("run", type=FILE)
overrides = click.argument("overrides", nargs=-1, metavar="[section.key=value]...")
checkpoint = click.option(
    "--checkpoint", help="best, last, average or a number; the average if there is one, else the best."
)
source = partial(click.option, "--input", "source", type=click.File("rb"), default="-")
output = click.option("--output", type=FILE, help="Where to; standard output if absent.")
beam = click.option("--beam", type=click.IntRange(1), help="Hypotheses kept at each step; the recipe's by default.")
json = click.option("--json", "file", type=FILE, help="Write everything to this file, too.")
