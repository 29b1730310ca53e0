"""What a trained model is used for, and what it scores: `translate`, `classify`, `caption`, `evaluate` and more.

What language models write is in `write.py`, what models are asked in `probe.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import click

from s2s.cli import options
from s2s.cli.lines import BadLines, check_output, chunks, lines_to, show_all, told_to_wait
from s2s.cli.numbers import Number
from s2s.errors import UserError, printable
from s2s.recipe.schema import BleuTokenizer

if TYPE_CHECKING:
    from s2s.run.folder import Opened

# how many batches of lines to translate are read ahead, and how many lines to classify
_BATCHES = 50
_LINES_AT_ONCE = 10_000
_METRICS = ("bleu", "chrf", "ter", "exact", "cer", "wer")
_lowercase = click.option("--lowercase", is_flag=True, help="Score without regard to case.")
_tokenize = click.option(
    "--tokenize",
    "tokenizer",
    type=click.Choice(get_args(BleuTokenizer)),
    help="sacreBLEU's tokenizer for BLEU and TER; by default, auto chooses by the script of the references.",
)


@options.command()
@options.run
@options.source(help="A text a line; standard input if absent.")
@options.output
@options.beam
@click.option("--nbest", type=click.IntRange(1), default=1, help="Translations a line: number, score, text.")
@click.option("--length-penalty", type=Number(0), help="Exponent of the length penalty.")
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), help="Of matrix products; the recipe's by default.")
@click.option("--task", "name", help="Which task of a text-to-text RUN; needed where it has several.")
@click.option(
    "--prefix",
    "before",
    type=options.TEXT,
    help="What stands before each line, such as '<2de> '; data.prefix by default.",
)
@options.checkpoint
def translate(
    run: Path,
    source,
    output: Path | None,
    beam,
    nbest: int,
    length_penalty,
    precision,
    name,
    before: str | None,
    checkpoint,
) -> None:
    """Translate lines with the model in RUN, in order; empty lines stay empty.

    A line that cannot be read has an empty translation and a message; the exit status is then 1.
    """
    from s2s.run.folder import opened

    changes = {"beam": beam, "length_penalty": length_penalty, "precision": precision}
    changes = {key: value for key, value in changes.items() if value is not None}
    overrides = [f"decoding.{key}={value}" for key, value in changes.items()]
    translator = opened(run, overrides, ["translation", "text-to-text"])
    _check_translates(translator, name, before)
    if translator.recipe.task == "text-to-text":
        _check_answers(translator, name, nbest, changes)
    check_output(output)
    prompt, tell = told_to_wait(run, source), partial(click.echo, err=True)
    recipe = cast(Any, translator.recipe)
    bad = BadLines()
    arriving = chunks(source, recipe.decoding.batch * _BATCHES, bad, prompt)
    if recipe.task == "text-to-text":
        from s2s.run.loaded import ready
        from s2s.tasks.text_to_text.use import written

        loaded = ready(translator, checkpoint)
        _write_all(written(loaded, name, arriving, nbest, source.isatty(), tell, bad.refuse), output, bad)
        return
    from s2s.run.loaded import line_translator
    from s2s.tasks.lines import translated

    prefix = recipe.data.prefix if before is None else before
    found, seen = line_translator(translator, nbest, checkpoint)
    if note := found.precision_note():
        tell(note)
    _write_all(translated(found, seen, arriving, source.isatty(), tell, prefix, bad.refuse), output, bad)


def _check_translates(run: "Opened", name: str | None, before: str | None) -> None:
    """Refuses what says nothing to a run, before anything heavy is loaded."""
    several = run.recipe.task == "text-to-text"
    if name is not None and not several:
        raise UserError("says nothing to runs of translation", where=f"--task {name}", remedy="leave it out")
    if before is not None and several:
        raise UserError("says nothing to runs of text-to-text", where=f"--prefix {before}", remedy="use --task")


def _check_answers(run: "Opened", name: str | None, nbest: int, changes: Mapping[str, object]) -> None:
    """Refuses another task than a text-to-text run has and, of one with answers, what says nothing to it."""
    from s2s.tasks.text_to_text.use import check_chosen, task_named

    task = task_named(cast(Any, run.recipe), name)
    if task.answers is not None:
        check_chosen(task.answers, nbest, [f"--{key.replace('_', '-')} {value}" for key, value in changes.items()])


@options.command()
@options.run
@options.source(help="A text or path a line; standard input if absent.")
@options.output
@click.option("--probabilities", is_flag=True, help="Each class's probability beside the answer: TAB name=0.1234.")
@options.checkpoint
def classify(run: Path, source, output: Path | None, probabilities: bool, checkpoint: str | None) -> None:
    """Name the class of each line with the model in RUN, in order; empty lines stay empty.

    A line is a text or, where RUN has learned from images, the path of an image. One that cannot be read has an empty
    answer and a message; the exit status is then 1.
    """
    from s2s.run.folder import opened

    classifier = opened(run, tasks=["classification", "images"])
    check_output(output)
    prompt = told_to_wait(run, source)
    from s2s.run.loaded import ready
    from s2s.run.tasks import task_of
    from s2s.tasks.classify_lines import classified
    from s2s.tasks.labelled import Labelling

    loaded, task = ready(classifier, checkpoint), cast(Labelling[Any, Any], task_of(classifier.recipe))
    bad, tell = BadLines(), partial(click.echo, err=True)
    arriving = chunks(source, _LINES_AT_ONCE, bad, prompt)
    found = classified(task, loaded, arriving, probabilities, bad.refuse, source.isatty(), tell)
    _write_all(found, output, bad)


@options.command()
@options.run
@click.argument("images", nargs=-1, required=True, type=options.FILE, metavar="IMAGE...")
@options.output
@options.beam
@click.option("--attention", type=options.FILE, help="Draw where the model looks for each word: .png or .html.")
@options.checkpoint
def caption(
    run: Path, images: tuple[Path, ...], output: Path | None, beam: int | None, attention: Path | None, checkpoint
) -> None:
    """Write a caption for each IMAGE with the model in RUN, a line each; with several, after the path and a tab."""
    from s2s.run.folder import opened

    captioner = opened(run, [f"decoding.beam={beam}"] if beam else [], ["captioning"])
    check_output(output)
    check_output(attention, "--attention")
    from s2s.run.loaded import ready
    from s2s.tasks.captioning.files import captioned, check_ending

    if attention:
        check_ending(attention)
    from s2s.decoding.translator import one_line

    bad = BadLines("image")
    found = captioned(ready(captioner, checkpoint), images, attention is not None, bad.refuse)
    if attention and len(found.refused) < len(images):
        found.save(attention)
    if found.length_limited:
        click.echo(str(found.length_limited), err=True)
    several = len(images) > 1
    lines = zip(map(str, images), found.captions, strict=True)
    _write_all((one_line(f"{name}\t{text}" if several else text) for name, text in lines), output, bad)


def _write_all(lines: Iterable[str], output: Path | None, bad: BadLines) -> None:
    with lines_to(output) as write:
        for line in lines:
            write(line)
    bad.exit()


@options.command()
@options.run
@click.argument("text", type=options.TEXT)
@click.option("--pieces", type=click.IntRange(1, 8), default=1, show_default=True, help="Pieces in the blank.")
@click.option("--best", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many fillers.")
@options.checkpoint
def fill(run: Path, text: str, pieces: int, best: int, checkpoint: str | None) -> None:
    """Fill the blank ___ in TEXT with what the masked-language model in RUN expects there."""
    from s2s.run.folder import opened

    model = opened(run, tasks=["masked-lm"])
    from s2s.run.loaded import ready
    from s2s.tasks.lines import TooLong
    from s2s.tasks.masked_lm.filling import fill_blank

    loaded, tell = ready(model, checkpoint), partial(click.echo, err=True)
    click.echo(printable(str(fill_blank(loaded, text, pieces, best))))
    TooLong(loaded.recipe.batches.max_length, tell, True, "shorten {}").add(len(loaded.tokenizers[0].encode(text)))


@options.command()
@click.argument("words", nargs=-1, required=True, metavar="RUN [RUN]... [section.key=value]...")
@click.option("--split", type=click.Choice(["test", "validation"]), help="Of the run's corpus; test when absent.")
@click.option("--source", type=options.FILE, help="Lines to translate in the place of a split; with --reference.")
@click.option(
    "--reference",
    "references",
    multiple=True,
    type=options.FILE,
    help="What a human wrote for each line of --source; repeat it to score against several references together.",
)
@_lowercase
@_tokenize
@options.beam
@options.checkpoint
@options.json
def evaluate(
    words: tuple[str, ...],
    split: str | None,
    source: Path | None,
    references: tuple[Path, ...],
    lowercase: bool,
    tokenizer: BleuTokenizer | None,
    beam: int | None,
    checkpoint: str | None,
    file: Path | None,
) -> None:
    """Score RUN on a split of its corpus, or on files; with several runs, test each against the first."""
    files = _both(source, references)
    if files and split:
        raise UserError(f"{split} is not scored: --source takes its place", "--split", "leave out one of them")
    check_output(file, "--json")
    _check_tokenizer(tokenizer)
    from s2s.run.folder import opened_together

    paths, overrides = options.paths_and_overrides(words)
    given = {"--beam": beam, "--lowercase": lowercase, "--source": files, "--tokenize": tokenizer}
    runs = opened_together(paths, overrides + ([f"decoding.beam={beam}"] if beam else []), given)
    from s2s.run.loaded import score_together
    from s2s.tasks.contract import Scoring

    evaluations, comparisons = score_together(
        runs, Scoring(split or "test", lowercase, files, tokenizer), checkpoint, partial(click.echo, err=True)
    )
    show_all(file, {"evaluations": evaluations, "comparisons": comparisons})


def _both(source: Path | None, references: tuple[Path, ...]) -> tuple[Path, ...] | None:
    if source and references:
        from s2s.data.text_files import check_there

        check_there(source, *references)
        _check_different(references)
        return source, *references
    if source or references:
        missing = "--reference" if source else "--source"
        one = source or references[0]
        raise UserError(f"{one} is one of two files", remedy=f"name the other one with {missing} FILE")
    return None


def _check_different(files: Sequence[Path]) -> None:
    if len({file.resolve() for file in files}) < len(files):
        raise UserError("the same file is named twice", remedy="name each file once")


def _check_tokenizer(tokenizer: BleuTokenizer | None) -> None:
    if tokenizer is not None:
        from s2s.evaluation.tokenization import check_tokenizer

        check_tokenizer(tokenizer, f"--tokenize {tokenizer}")


@options.command()
@click.argument("hypothesis", type=options.FILE, metavar="HYP")
@click.argument("references", nargs=-1, required=True, type=options.FILE, metavar="REF [REF]...")
@click.option(
    "--against",
    "others",
    multiple=True,
    type=options.FILE,
    help="Translations of another system, to score and to test against HYP; may be repeated.",
)
@click.option("--metric", "names", multiple=True, type=click.Choice(_METRICS), help="Only this one; may be repeated.")
@_lowercase
@_tokenize
@options.json
def score(
    hypothesis: Path,
    references: tuple[Path, ...],
    others: tuple[Path, ...],
    names: tuple[str, ...],
    lowercase: bool,
    tokenizer: BleuTokenizer | None,
    file: Path | None,
) -> None:
    """Score the lines of HYP against those of REF, or of several REF together.

    With --against, test other systems against HYP on the same references. Where lines are phones with white space
    between them, wer is the phone error rate; where spaces do not separate words, it is the character error rate.
    """
    check_output(file, "--json")
    _check_tokenizer(tokenizer)
    systems = (hypothesis, *others)
    from s2s.data.text_files import check_there
    from s2s.tasks.translation.evaluation import score_files

    check_there(*systems, *references)
    _check_different([*systems, *references])
    say = partial(click.echo, err=True)
    scores, comparisons = score_files(systems, references, lowercase, names or _METRICS, tokenizer or "auto", say)
    show_all(file, {"scores": scores, "comparisons": comparisons})
