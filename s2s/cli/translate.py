"""Command `s2s translate`: translate lines of text."""

import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

import click

from s2s.cli import options
from s2s.cli.lines import BadLines, announce_waiting, check_output, chunks, write_all
from s2s.data.sentences import Split, sentence_splitter, unsplit
from s2s.errors import UserError

if TYPE_CHECKING:
    from s2s.recipe.schema import TrainRecipe

_BATCHES = 50  # read ahead


@options.command(
    epilog=options.examples(
        "s2s translate runs/translate 'The old dog sleeps.'",
        "s2s translate runs/translate --input lines.txt",
        "s2s translate runs/translate --input lines.txt --beam 4 --nbest 3 --output best.txt",
        "s2s translate runs/translate --input lines.txt --sample --top-p 0.9 --nbest 3 --output samples.txt",
    )
)
@options.run
@options.texts
@options.source(help="Without TEXT: file with one text per line; default: standard input.")
@options.output
@options.beam
@click.option(
    "--nbest", type=click.IntRange(1), default=1, help="Translations per line, each with line number and score."
)
@click.option("--length-penalty", type=options.Number(0), help="Exponent of the length penalty; default: the recipe's.")
@click.option(
    "--precision", type=click.Choice(["fp32", "bf16"]), help="Precision of matrix products; default: the recipe's."
)
@click.option("--beam-groups", type=click.IntRange(1), help="Groups of diverse beam search; they divide the beam.")
@click.option("--min-length", type=click.IntRange(0, 4_096), help="Minimum output length in tokens.")
@click.option("--no-repeat-ngram", type=click.IntRange(0, 100), help="Size of n-grams that may occur only once.")
@click.option("--copy-penalty", type=options.Number(0), help="Penalty of each token that the source has, in nats.")
@click.option(
    "--forced-prefix",
    type=options.FILE,
    help="File with the beginning of each translation, one per line; may be empty.",
)
@click.option("--sample", is_flag=True, default=None, help="Draw translations instead of searching the best.")
@click.option("--temperature", type=options.Number(0, 100), help="With --sample: sampling temperature.")
@click.option("--top-k", type=click.IntRange(1), help="With --sample: from the K most probable tokens.")
@click.option("--top-p", type=options.Number(0, 1, min_open=True), help="With --sample: nucleus sampling.")
@click.option("--min-p", type=options.Number(0, 1), help="With --sample: least share of the largest probability.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="With --sample: seed.")
@click.option("--task", "name", help="Task of a text-to-text RUN; required if it has several.")
@click.option(
    "--prefix", "before", type=options.TEXT, help="Text before each line, such as '<2de> '; default: data.prefix."
)
@click.option("--split-sentences", is_flag=True, help="Translate the sentences of each line one by one.")
@options.checkpoint
@options.quiet
def translate(
    run: Path,
    texts: tuple[str, ...],
    source: IO[bytes],
    output: Path | None,
    beam: int | None,
    nbest: int,
    length_penalty: float | None,
    precision: Literal["fp32", "bf16"] | None,
    beam_groups: int | None,
    min_length: int | None,
    no_repeat_ngram: int | None,
    copy_penalty: float | None,
    forced_prefix: Path | None,
    sample: bool | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    seed: int | None,
    name: str | None,
    before: str | None,
    split_sentences: bool,
    checkpoint: str | None,
    quiet: bool,
) -> None:
    """Translate each TEXT, or the lines of the input, with the model in RUN. Empty lines stay empty.

    A line that cannot be read has an empty translation and a message; the exit status is then 1.
    """
    from s2s.run.folder import open_ensemble

    options.check_texts(texts)
    changes = {"beam": beam, "length_penalty": length_penalty, "precision": precision}
    changes |= {
        "beam_groups": beam_groups,
        "min_length": min_length,
        "no_repeat_ngram": no_repeat_ngram,
        "copy_penalty": copy_penalty,
        "sample": sample,
    }
    changes |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    changes = {key: value for key, value in changes.items() if value is not None}
    overrides = [f"decoding.{key}={json.dumps(value)}" for key, value in changes.items()]
    translator = open_ensemble(run, overrides, ["translation", "text-to-text"])
    # Refuse options without effect before anything heavy is imported.
    options.check_beam(translator.recipe, beam)
    if name is not None and translator.recipe.task != "text-to-text":
        raise UserError("does not apply to runs of translation", where=f"--task {name}", remedy="leave it out")
    if translator.recipe.task == "text-to-text":
        if before is not None:
            raise UserError("does not apply to runs of text-to-text", where=f"--prefix {before}", remedy="use --task")
        from s2s.tasks.text_to_text.answers import check_chosen, task_named

        task = task_named(cast(Any, translator.recipe), name)
        if task.answers is not None:
            given = changes | ({"forced_prefix": forced_prefix} if forced_prefix else {})
            check_chosen(task.answers, nbest, [f"--{key.replace('_', '-')} {value}" for key, value in given.items()])
    split = _splitter(translator.recipe, nbest, forced_prefix) if split_sentences else unsplit
    begins = None
    if forced_prefix is not None:
        from s2s.data.text_files import check_there, lines

        check_there(forced_prefix)
        begins = iter(lines(forced_prefix))
    check_output(output)
    prompt, tell = announce_waiting(run, source, texts), options.printer(quiet, err=True)
    recipe = cast(Any, translator.recipe)
    bad = BadLines()
    arriving = [list(texts)] if texts else chunks(source, recipe.decoding.batch * _BATCHES, bad, prompt)
    if recipe.task == "text-to-text":
        from s2s.models.base import Seq2Seq
        from s2s.run.inference import load_for_inference
        from s2s.tasks.text_to_text.answers import generate_answers
        from s2s.tasks.text_to_text.recipe import TextToTextRecipe

        loaded = load_for_inference(translator, checkpoint).narrow(TextToTextRecipe, Seq2Seq)
        write_all(
            generate_answers(loaded, name, arriving, nbest, source.isatty(), tell, bad.refuse, begins), output, bad
        )
        return
    from s2s.run.inference import line_translator
    from s2s.tasks.line_translation import translate_lines

    prefix = recipe.data.prefix if before is None else before
    found, seen = line_translator(translator, nbest, checkpoint)
    if note := found.precision_note():
        tell(note)
    written = translate_lines(found, seen, arriving, source.isatty(), tell, prefix, bad.refuse, begins, split)
    write_all(written, output, bad)


def _splitter(recipe: "TrainRecipe", nbest: int, forced_prefix: Path | None) -> Split:
    others = {f"--nbest {nbest}": nbest > 1, f"--forced-prefix {forced_prefix}": forced_prefix is not None}
    if excluded := [option for option, given in others.items() if given]:
        what = "has no effect on single sentences of a line"
        raise UserError(what, excluded[0], "leave it out, or --split-sentences")
    if recipe.task != "translation":
        what = f"does not apply to runs of {recipe.task}"
        raise UserError(what, where="--split-sentences", remedy="leave it out")
    return sentence_splitter(cast(Any, recipe).data.source)
