"""Command `s2s evaluate`: score runs or files of translations, and run probes."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from s2s.arguments import check_unique
from s2s.cli import options
from s2s.cli.lines import check_output, show_all
from s2s.errors import UserError
from s2s.recipe.schema import BleuTokenizer

if TYPE_CHECKING:
    from s2s.run.folder import RunConfig


@options.command(
    epilog=options.examples(
        "s2s evaluate runs/translate",
        "s2s evaluate runs/translate runs/other --json scores.json",
        "s2s evaluate 'runs/gru-seed*' 'runs/transformer-seed*'",
        "s2s evaluate runs/translate --source lines.txt --reference reference.txt",
        "s2s evaluate --hypotheses one.txt --reference reference.txt --against other.txt --metric bleu",
        "s2s evaluate runs/translate --source lines.txt --hypotheses one.txt --log-probs",
    )
)
@click.argument("words", nargs=-1, metavar="[RUN]... [section.key=value]...")
@click.option("--split", type=click.Choice(["test", "validation"]), help="Split of the run's corpus; default: test.")
@click.option(
    "--source", type=options.FILE, help="Translate and score these lines instead of a split; with --reference."
)
@click.option(
    "--reference",
    "references",
    multiple=True,
    type=options.FILE,
    help="Reference translations, line by line; repeat it to score against several references together.",
)
@click.option("--hypotheses", type=options.FILE, help="Score these translations, without a RUN; with --reference.")
@click.option(
    "--log-probs",
    is_flag=True,
    help="Print the log probability of each line of --hypotheses under RUN; with --source. --json adds tokens.",
)
@click.option(
    "--rerank", is_flag=True, help="Sort --hypotheses, an n-best list of s2s translate, by RUN; with --source."
)
@click.option(
    "--against",
    "others",
    multiple=True,
    type=options.FILE,
    help="Translations of another system, to score and to test against --hypotheses; may be repeated.",
)
@click.option(
    "--metric",
    "names",
    multiple=True,
    metavar="NAME",
    help="Compute only this metric of translations: bleu, chrf, ter, exact, cer, wer, cider, comet, bertscore, or one "
    "of another package; may be repeated. Default: the first six.",
)
@click.option(
    "--bias", type=options.FILE, help="Run the bias probe on a masked-language model: a table of sentence pairs."
)
@click.option(
    "--induction",
    type=click.IntRange(2, 10_000),
    metavar="LENGTH",
    help="Run the induction probe on a language model: repeat sequences of LENGTH random tokens.",
)
@click.option("--lowercase", is_flag=True, help="Score without regard to case.")
@click.option(
    "--tokenize",
    "tokenizer",
    type=click.Choice(get_args(BleuTokenizer)),
    help="Tokenizer of sacreBLEU for BLEU and TER; default: auto, by the script of the references.",
)
@options.beam
@options.checkpoint
@options.json
def evaluate(
    words: tuple[str, ...],
    split: str | None,
    source: Path | None,
    references: tuple[Path, ...],
    hypotheses: Path | None,
    log_probs: bool,
    rerank: bool,
    others: tuple[Path, ...],
    names: tuple[str, ...],
    bias: Path | None,
    induction: int | None,
    lowercase: bool,
    tokenizer: BleuTokenizer | None,
    beam: int | None,
    checkpoint: str | None,
    file: Path | None,
) -> None:
    """Score RUN on a split of its corpus or on files, or score files of translations.

    With several RUNs, test each against the first; with --against, each file against --hypotheses (paired tests). For
    lines of phones separated by spaces, wer is the phone error rate; in scripts without spaces, it is the character
    error rate.

    A RUN can be a group of seeds: the name that `s2s train --seeds` extended, or a quoted pattern. Groups are tested
    over seeds and test examples.

    --bias and --induction print a probe instead (docs/bias-probe.md, docs/language-models.md).
    """
    check_output(file, "--json")
    if tokenizer is not None:
        from s2s.evaluation.tokenization import check_tokenizer

        check_tokenizer(tokenizer, f"--tokenize {tokenizer}")
    scoring = {"--split": split, "--source": source, "--beam": beam}
    if log_probs or rerank:
        chosen = "--rerank" if rerank else "--log-probs"
        more = {"--reference": references, "--against": others, "--metric": names, "--lowercase": lowercase}
        more |= {"--tokenize": tokenizer, "--bias": bias, "--induction": induction, "--split": split, "--beam": beam}
        _refuse(chosen, more | ({"--log-probs": log_probs, "--json": file} if rerank else {}))
        _rescore(words, source, hypotheses, checkpoint, file, chosen)
        return
    if hypotheses is not None:
        _refuse("--hypotheses", {"RUN": words, "--checkpoint": checkpoint, "--bias": bias, "--induction": induction})
        _refuse("--hypotheses", {**scoring, "--source": None if _check_metrics(names) else source})
        _score_files((hypotheses, *others), references, lowercase, names, tokenizer, file, source)
        return
    if others:
        raise UserError("only has an effect with --hypotheses", "--against", "leave it out, or add --hypotheses FILE")
    if bias is not None or induction is not None:
        both = {"--bias": bias if induction is not None else None, "--reference": references, "--json": file}
        more = {"--lowercase": lowercase, "--tokenize": tokenizer, "--metric": names}
        _refuse("a probe", both | scoring | more)
        _probe(words, bias, induction, checkpoint)
        return
    paths, overrides = options.paths_and_overrides(words)
    overrides += [f"decoding.beam={beam}"] if beam else []
    check_unique(overrides)
    _check_metrics(names)
    given = {"--beam": beam, "--lowercase": lowercase, "--source": source, "--reference": references}
    runs, sizes = _open_groups(paths, overrides, given | {"--tokenize": tokenizer, "--metric": names})
    for run in runs:
        options.check_beam(run.recipe, beam)
    files = _source_and_references(source, references)
    if files and split:
        raise UserError(f"{split} is not scored, because --source replaces it", "--split", "leave out one of them")
    from s2s.run.inference import score_together
    from s2s.tasks.base import EvaluationOptions

    scoring_options = EvaluationOptions(split or "test", lowercase, files, tokenizer, names)
    tell = partial(click.echo, err=True)
    evaluations, comparisons = score_together(runs, scoring_options, checkpoint, tell, sizes)
    show_all(file, {"evaluations": evaluations, "comparisons": comparisons}, ["comparisons"] if sizes else None)
    if sizes:
        click.echo("means with 95 % intervals over seeds; differences and p-values over seeds and test examples")
    elif comparisons:
        _tell_about_seeds(runs)


def _open_groups(
    paths: Sequence[Path], overrides: Sequence[str], given: Mapping[str, object]
) -> "tuple[list[RunConfig], dict[str, int] | None]":
    """Open all runs; return them, and the sizes of the groups of seeds if there are any."""
    from s2s.run.folder import check_groups, open_runs, seed_group

    groups = [(str(path), seed_group(path)) for path in paths]
    runs = open_runs([run for _, members in groups for run in members], overrides, given)
    if all(len(members) == 1 for _, members in groups):
        return runs, None
    in_turn = iter(runs)
    check_groups({name: list(islice(in_turn, len(members))) for name, members in groups})
    return runs, {name: len(members) for name, members in groups}


def _tell_about_seeds(runs: "Sequence[RunConfig]") -> None:
    from s2s.run.folder import seeds_only

    for run in runs[1:]:
        if seeds_only(runs[0].kept, run.kept):
            click.echo(f"{runs[0].path} and {run.path} differ only in their seeds")
    click.echo("p-values are over test examples; they say nothing about other seeds (s2s train RECIPE --seeds 3)")


def _check_metrics(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    from s2s.evaluation.metrics import check_metrics

    return check_metrics(names, "--metric")


def _refuse(chosen: str, given: Mapping[str, object]) -> None:
    """Refuse options, or a RUN, that have no effect with another option."""
    if wrong := [name for name, value in given.items() if value not in (None, (), False)]:
        raise UserError(f"{', '.join(wrong)} cannot be combined with {chosen}", remedy="leave one of them out")


def _score_files(
    systems: Sequence[Path],
    references: Sequence[Path],
    lowercase: bool,
    names: Sequence[str],
    tokenizer: BleuTokenizer | None,
    file: Path | None,
    source: Path | None,
) -> None:
    if not references:
        raise UserError("needs a reference", "--hypotheses", "add --reference FILE")
    from s2s.data.text_files import check_there
    from s2s.evaluation.file_scores import score_files
    from s2s.evaluation.metrics import NAMES

    check_there(*systems, *references, *([source] if source else []))
    _check_different([*systems, *references])
    print_fn, names = partial(click.echo, err=True), names or NAMES
    scores, comparisons = score_files(systems, references, lowercase, names, tokenizer or "auto", print_fn, source)
    show_all(file, {"scores": scores, "comparisons": comparisons})


def _rescore(
    words: Sequence[str],
    source: Path | None,
    hypotheses: Path | None,
    checkpoint: str | None,
    file: Path | None,
    chosen: str,
) -> None:
    paths, overrides = options.paths_and_overrides(words)
    if len(paths) != 1 or source is None or hypotheses is None:
        remedy = f"s2s evaluate RUN --source FILE --hypotheses FILE {chosen}"
        raise UserError("takes one RUN, its sources and their translations", chosen, remedy)
    from s2s.data.text_files import check_there
    from s2s.run.folder import open_ensemble

    check_there(source, hypotheses)
    opened = open_ensemble(paths[0], overrides, ["translation"])
    from s2s.run.rescoring import rerank, score_lines
    from s2s.run.trained_run import Run

    found = (rerank if chosen == "--rerank" else score_lines)(Run(opened, checkpoint), source, hypotheses)
    if chosen == "--rerank":
        for each in found:
            click.echo(f"{each.line}\t{each.score:.4f}\t{each.text}")
        return
    click.echo("line\tlog probability\ttokens\tperplexity\ttext")
    show_all(file, {"hypotheses": found})


def _probe(words: Sequence[str], bias: Path | None, induction: int | None, checkpoint: str | None) -> None:
    from s2s.run.folder import open_run

    paths, overrides = options.paths_and_overrides(words)
    if len(paths) != 1 or overrides:
        raise UserError("a probe takes one RUN and no overrides", remedy="s2s evaluate RUN --bias FILE")
    model = open_run(paths[0], tasks=["masked-lm" if bias else "language-model"])
    from s2s.run.inference import load_for_inference

    loaded = load_for_inference(model, checkpoint)
    if bias is not None:
        from s2s.models.masked_lm import MaskedLM
        from s2s.tasks.masked_lm.bias import probe as probe_bias
        from s2s.tasks.masked_lm.recipe import MaskedRecipe

        click.echo(str(probe_bias(loaded.narrow(MaskedRecipe, MaskedLM), bias)))
    elif induction is not None:
        from s2s.models.language_model import LanguageModel
        from s2s.tasks.language_model.induction import probe as probe_induction
        from s2s.tasks.language_model.recipe import LanguageRecipe

        click.echo(str(probe_induction(loaded.narrow(LanguageRecipe, LanguageModel), induction)))


def _source_and_references(source: Path | None, references: tuple[Path, ...]) -> tuple[Path, ...] | None:
    if source and references:
        from s2s.data.text_files import check_there

        check_there(source, *references)
        _check_different(references)
        return source, *references
    if source or references:
        missing = "--reference" if source else "--source"
        one = source or references[0]
        raise UserError(f"{one} needs a second file", remedy=f"add {missing} FILE")
    return None


def _check_different(files: Sequence[Path]) -> None:
    if len({file.resolve() for file in files}) < len(files):
        raise UserError("a file is given twice", remedy="name each file once")
