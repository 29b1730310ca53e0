"""Bad command lines, runs of the wrong task, and damaged comparisons."""

import json
from collections.abc import Iterator
from typing import Any

from tests.faults.world import TRANSLATION, Case, directory, fifo, zero

# how each command names a recipe, and a run
RECIPES = {
    "train": ("train",),
    "validate": ("recipe", "validate"),
    "show": ("recipe", "show"),
    "data check": ("data", "check"),
    "compare on translation": ("compare", "rnn", "gru", "--recipe"),
    "compare on classification": ("compare", "rnn", "gru", "--task"),
}
RUNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "translate": (("translate",), ()),
    "classify": (("classify",), ()),
    "evaluate": (("evaluate",), ()),
    "inspect": (("inspect",), ("A text.",)),
    "align": (("inspect", "--align"), ()),
    "diagnose": (("diagnose",), ()),
    "fill": (("fill",), ("A ___.",)),
    "fill words": (("fill",), ("A ___.", "--words", "a/b")),
    "resume": (("train",), ("--resume",)),
    "report": (("report",), ()),
    "resume a comparison": (("compare", "--resume"), ()),
}
NO_RECIPES = {
    "missing": ("gone.yaml", {}, "gone.yaml"),
    "near": ("tranlate", {}, "did you mean translate?"),
    "a folder": ("folder", {"folder": directory}, "folder"),
    "a pipe": ("pipe.yaml", {"pipe.yaml": fifo}, "not a regular file"),
    "a device": ("zero.yaml", {"zero.yaml": zero}, "device"),
    "of 300 characters": ("n" * 300, {}, "nnn"),
}
NO_RUNS = {
    "missing": ("runs/gone", {}, "runs/gone"),
    "empty": ("runs/empty", {"runs/empty": directory}, "runs/empty"),
    "a file": ("run", {"run": "text"}, "run"),
    "a pipe": ("pipe", {"pipe": fifo}, "pipe"),
}

# words of a command line, and what is told
WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a command": ("transalte", ("'transalte'", "did you mean translate?")),
    "no command at all near": ("xyzzy", ("'xyzzy'", "there are train")),
    "data": ("data chek", ("'chek'", "did you mean check?")),
    "recipe": ("recipe valdate", ("'valdate'", "did you mean validate?")),
    "new": ("new tranlate", ("'tranlate'", "did you mean translate?")),
    "an option": ("train translate --resum", ("--resum", "--resume")),
    "a long word": ("w" * 10_000, ("wwww",)),
    "no argument": ("train", ("RECIPE",)),
    "overfit and resume": ("train {world}/t.yaml --overfit --resume", ("--overfit", "--resume")),
    "overfit classes": ("train {world}/c.yaml --overfit", ("--overfit", "classification")),
    "resume by another recipe": ("train {world}/runs/t --resume training.updates=x", ("training.updates=x",)),
    "resume a checkpoint": ("train {world}/runs/t/checkpoints/0000001 --resume", ("is a checkpoint", "runs/t")),
    "a run that is there": ("train {world}/t.yaml run.dir={world}/runs/t", ("runs/t", "--resume", "--overwrite")),
    "a folder that is no run": ("train {world}/t.yaml run.dir={world}/i", ("world/i", "run.dir=DIR")),
    "a folder that is a file": ("train {world}/t.yaml run.dir={world}/c.tsv", ("c.tsv", "run.dir=DIR")),
    "a folder's long name": (f"train {{world}}/t.yaml run.dir={'d' * 300}", ("ddd", "run.dir")),
    "a wide model": ("train {world}/t.yaml model.width=65536 model.feedforward=262144", ("parameters", "model.width")),
    "a deep model": ("train {world}/t.yaml model.width=8192 model.encoder_layers=1000", ("parameters", "GiB")),
    "a wide classifier": ("train {world}/c.yaml model.kind=lstm model.width=65536", ("parameters", "GiB")),
    "one model": ("compare rnn", ("rnn", "at least two models")),
    "a setting twice": ("compare transformer:norm=post,norm=pre lstm", ("norm is set twice", "transformer:norm=post")),
    "a model's setting twice": ("compare gru lstm lstm.layers=1 lstm.layers=2", ("lstm.layers is set twice",)),
    "a model that cannot translate": ("compare rnn-tagger gru", ("rnn-tagger", "cannot translate")),
    "an input twice": ("translate {world}/runs/t --input {world}/c.tsv --input {world}/c.tsv", ("--input", "2 times")),
    "a split twice": ("evaluate {world}/runs/t --split test --split validation", ("--split", "2 times")),
    "a flag twice": ("classify {world}/runs/c --probabilities --probabilities", ("--probabilities", "2 times")),
    "a seed twice": ("generate {world}/runs/l text --seed 1 --seed 2", ("--seed", "2 times")),
    "a model twice": ("compare rnn rnn", ("rnn, rnn",)),
    "a model that is none": ("compare rnn transfomer", ("'transfomer'", "did you mean transformer?")),
    "no seeds": ("compare rnn gru --seeds 0", ("--seeds", "0")),
    "seeds in words": ("compare rnn gru --seeds many", ("--seeds", "'many'")),
    "a profile": ("compare rnn gru --profile fast", ("--profile", "'fast'", "quick")),
    "a match": ("compare rnn gru --match size", ("--match", "'size'", "time")),
    "an experiment": ("compare rnn gru --experiment memry", ("'memry'", "did you mean memory?")),
    "another task's experiment": ("compare rnn gru --experiment text-length", ("'text-length'", "translation")),
    "a setting of an absent model": ("compare rnn gru lstm.width=5", ("lstm.width=5",)),
    "a rate of a comparison": (
        "compare rnn gru training.learning_rate=0.01",
        ("training.learning_rate", "searched for"),
    ),
    "seeds as settings": ("compare rnn gru seeds.data=7", ("seeds.data=7", "--seeds")),
    "a run's folder for a comparison": ("compare rnn gru run.dir=x", ("run.dir=x", "--out")),
    "a comparison's setting twice": (
        "compare rnn gru training.updates=3 training.updates=4",
        ("training.updates is set twice",),
    ),
    "an empty word": ("fill {world}/runs/m ___ --words dog/", ("an empty word", "--words dog/")),
    "pieces of given words": ("fill {world}/runs/m ___ --words dog/cat --pieces 3", ("--pieces", "--words")),
    "a wrong setting": ("compare rnn gru training.updates=0", ("training.updates", "0")),
    "two recipes": ("compare rnn gru --task ag_news --recipe translate", ("--task", "--recipe")),
    "a recipe of another task": ("compare rnn gru --recipe {world}/c.yaml", ("c.yaml", "classification")),
    "resume and more": ("compare gru training.updates=3 --resume x", ("--resume",)),
    "no run": ("evaluate data.test=5", ("s2s evaluate",)),
    "a run twice": ("evaluate {world}/runs/t {world}/runs/t", ("twice",)),
    "runs of two tasks": ("evaluate {world}/runs/t {world}/runs/c", ("translation", "classification")),
    "a split": ("evaluate {world}/runs/t --split train", ("--split", "'train'")),
    "lower-case classes": ("evaluate {world}/runs/c --lowercase", ("--lowercase", "classification")),
    "a tokenizer for classes": ("evaluate {world}/runs/c --tokenize zh", ("--tokenize", "classification")),
    "no tokenizer": ("evaluate {world}/runs/t --tokenize zn", ("--tokenize", "'zn'", "zh")),
    "a reference twice": (
        "evaluate {world}/runs/t --source {world}/t.yaml --reference {world}/c.yaml --reference {world}/c.yaml",
        ("twice",),
    ),
    "a reference without its source": ("evaluate {world}/runs/t --reference {world}/t.yaml", ("--source",)),
    "a beam for classes": ("evaluate {world}/runs/c --beam 2", ("--beam", "classification")),
    "a JSON file nowhere": ("evaluate {world}/runs/t --json gone/x.json", ("gone",)),
    "other classes": ("evaluate {world}/runs/c data.classes=[x,y]", ("data.classes",)),
    "another model": ("evaluate {world}/runs/t model.width=32", ("model.width=32",)),
    "no beam": ("translate {world}/runs/t --beam 0", ("--beam", "0")),
    "no translations": ("translate {world}/runs/t --nbest 0", ("--nbest", "0")),
    "a negative penalty": ("translate {world}/runs/t --length-penalty -1", ("--length-penalty", "-1")),
    "a temperature without sampling": ("translate {world}/runs/t --temperature 2", ("temperature", "sample: true")),
    "top-k in a search": ("evaluate {world}/runs/t decoding.top_k=3", ("top_k", "sample: true")),
    "prefixes that are not there": ("translate {world}/runs/t --forced-prefix gone.txt", ("gone.txt",)),
    "no input": ("translate {world}/runs/t --input gone.txt", ("--input", "gone.txt")),
    "output into nothing": ("translate {world}/runs/t --output gone/x.txt", ("gone",)),
    "output into a folder": ("translate {world}/runs/t --output {world}", ("--output", "is a folder")),
    "a checkpoint": ("translate {world}/runs/t --checkpoint 7", ("'7'", "0000001")),
    "a checkpoint in words": ("classify {world}/runs/c --checkpoint worst", ("'worst'", "best")),
    "a checkpoint to score": ("evaluate {world}/runs/t --checkpoint 99", ("'99'", "0000001")),
    "translate by a classifier": ("translate {world}/runs/c", ("classification", "s2s classify")),
    "translate by images": ("translate {world}/runs/i", ("images",)),
    "classify by a translator": ("classify {world}/runs/t", ("translation", "s2s translate")),
    "caption by images": ("caption {world}/runs/i {world}/i.yaml", ("images", "s2s classify")),
    "a caption of nothing": ("caption {world}/runs/i", ("IMAGE",)),
    "fill by a translator": ("fill {world}/runs/t ___", ("translation", "masked-lm")),
    "generate by a translator": ("generate {world}/runs/t text", ("translation", "language-model")),
    "a row longer than a batch": ("train {world}/l.yaml batches.length=65", ("batches.tokens=65",)),
    "a stride longer than the context": ("evaluate {world}/runs/l scoring.stride=33", ("scoring.stride=32",)),
    "a temperature below zero": ("generate {world}/runs/l text --temperature -1", ("--temperature", "-1")),
    "a temperature that is no number": ("generate {world}/runs/l text --temperature nan", ("--temperature", "nan")),
    "a nucleus of nothing": ("generate {world}/runs/l text --top-p 0", ("--top-p", "0")),
    "no best pieces": ("generate {world}/runs/l text --top-k 0", ("--top-k", "0")),
    "prompts that are not there": ("generate {world}/runs/l --input gone.txt", ("--input", "gone.txt")),
    "texts into nothing": ("generate {world}/runs/l text --output gone/x.txt", ("gone",)),
    "a sequence of more pieces than there are": ("evaluate {world}/runs/l --induction 300", ("300", "256")),
    "a column of plain text": ("new text --data {world}/t.yaml --text a", ("--text a",)),
    "alignments by a classifier": ("inspect {world}/runs/c --align", ("classification",)),
    "a reference that is not there": ("inspect {world}/runs/t --align --reference gone.txt", ("gone.txt",)),
    "an alignment's layer": ("inspect {world}/runs/t --align --layer 3 --input {world}/c.tsv", ("layer 3", "--layer")),
    "three inputs": ("inspect {world}/runs/t a b c", ("3 inputs",)),
    "a translation of a class": ("inspect {world}/runs/c text --translation x", ("--translation", "classification")),
    "a translation of nothing": ("inspect {world}/runs/t --translation x", ("--translation", "one INPUT")),
    "a row too far": ("inspect {world}/runs/t --row 3", ("row 3", "--row", "1 to 2")),
    "a row of none": ("inspect {world}/runs/t --row 0", ("--row", "0")),
    "a word that is not there": ("inspect {world}/runs/c text --word other", ("--word", "'other'", "text")),
    "a patch that is not there": ("inspect {world}/runs/i --word 9,9", ("--word", "'9,9'", "1,1")),
    "nothing in common": ("inspect {world}/runs/t text other", ("no common word",)),
    "an image that is not there": ("inspect {world}/runs/i gone.png", ("gone.png",)),
    "a head": ("inspect {world}/runs/m text --head 7", ("head 7", "--head", "0 to 1")),
    "nothing to fill": ("fill {world}/runs/m text", ("___",)),
    "two blanks": ("fill {world}/runs/m ___,___", ("___",)),
    "many pieces": ("fill {world}/runs/m ___ --pieces 9", ("--pieces", "9")),
    "no fillers": ("fill {world}/runs/m ___ --best 0", ("--best", "0")),
    "a picture of no kind": ("inspect {world}/runs/t text --output x.xyz", (".xyz", ".png")),
    "a page nowhere": ("inspect {world}/runs/t text --output gone/x.html", ("gone",)),
    "a layer": ("inspect {world}/runs/t text --layer 9 --output x.png", ("layer 9", "--layer")),
    "no layer": ("inspect {world}/runs/t text --layer -1", ("--layer", "-1")),
    "two probes": ("evaluate {world}/runs/m --bias {world}/c.tsv --induction 5", ("--bias",)),
    "a probe of no run": ("evaluate --induction 5", ("one RUN",)),
    "one word": ("fill {world}/runs/m ___ --words a", ("--words",)),
    "words without a blank": ("fill {world}/runs/m text --words a/b", ("___",)),
    "a recipe to copy": ("recipe copy tranlate", ("'tranlate'", "did you mean translate?")),
    "a copy nowhere": ("recipe copy translate gone/x.yaml", ("gone/x.yaml", "mkdir")),
    "a copy over a file": ("recipe copy translate {world}/t.yaml", ("t.yaml", "--overwrite")),
    "a schema": ("recipe schema --model transfomer", ("'transfomer'", "did you mean transformer?")),
    "only overrides": ("recipe validate training.updates=5", ("training.updates=5",)),
    "a check of no images": ("data check {world}/i.yaml data.train=gone", ("gone",)),
    "a validation of one side": (
        "new translate --source a --target b --validation-source c",
        ("c", "--validation-target"),
    ),
    "one side": ("new translate --source a", ("--target",)),
}

SUMMARY: dict[str, Any] = {
    "command": "s2s compare rnn gru",
    "profile": "quick",
    "match": "parameters",
    "models": ["rnn", "gru"],
    "seeds": [1],
    "experiments": ["memory"],
    "contenders": [],
    "machine": {},
    "seconds": 1,
}
SERIES: dict[str, Any] = {"label": "rnn", "model": "rnn", "x": [1.0], "y": [2.0]}
FIGURE: dict[str, Any] = {"name": "f", "title": "F", "series": [SERIES]}
RESULT: dict[str, Any] = {
    "experiment": "memory",
    "question": "?",
    "method": "m",
    "models": ["rnn", "gru"],
    "seeds": [1],
    "findings": [],
    "figures": [FIGURE],
}
# changes of a comparison's summary, and of its result, and what is told
SUMMARIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a parent for an experiment": ({"experiments": [".."]}, ("experiments", "'..'")),
    "a path for an experiment": ({"experiments": ["/tmp"]}, ("experiments", "'/tmp'")),
    "an open quote": ({"command": "s2s compare 'rnn"}, ("command", "quotation")),
    "another version": ({"format": 2}, ("format", "comparison.json")),
    "another profile": ({"profile": "fast"}, ("profile",)),
    "an unknown field": ({"colour": "red"}, ("colour",)),
    "seeds in words": ({"seeds": ["x"]}, ("seeds",)),
}
RESULTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "another experiment": ({"experiment": "quality"}, ("result.json", "'quality'")),
    "a parent for an experiment": ({"experiment": "../../elsewhere"}, ("experiment", "elsewhere")),
    "a path for a figure": ({"figures": [FIGURE | {"name": "../f"}]}, ("figures.0.name",)),
    "a figure twice": ({"figures": [FIGURE, FIGURE]}, ("'f'", "twice")),
    "an infinite value": ({"figures": [FIGURE | {"y": {"label": "y", "log": 5}}]}, ("figures.0.y.log",)),
    "a huge value": ({"figures": [FIGURE | {"series": [SERIES | {"y": [1e308]}]}]}, ("'rnn'", "1e300")),
    "a value too many": ({"figures": [FIGURE | {"series": [SERIES | {"y": [1.0, 2.0]}]}]}, ("'rnn'",)),
    "a short row": ({"tables": [{"name": "t", "title": "T", "columns": ["a", "b"], "rows": [["x"]]}]}, ("'t'", "row")),
}
TEXTS = {"empty": "", "no JSON": "{", "a list": "[]", "null": "null", "nothing": "{}", "deep": "[" * 100_000}


def cases() -> Iterator[Case]:
    """All of them."""
    for command, words in RECIPES.items():
        for name, (recipe, files, told) in NO_RECIPES.items():
            yield Case(f"{command}: recipe {name}", (*words, recipe), (told,), files)
    for command, (before, after) in RUNS.items():
        for name, (run, files, told) in NO_RUNS.items():
            yield Case(f"{command}: run {name}", (*before, run, *after), (told,), files)
    for name, (text, told) in WORDS.items():
        yield Case(f"words: {name}", tuple(text.split(" ")), told)
    report = ("report", "folder")
    for name, text in TEXTS.items():
        yield Case(f"report: summary {name}", report, ("comparison.json",), {"folder/comparison.json": text})
        resume = ("compare", "--resume", "folder")
        files = {"folder/comparison.json": text, "folder/recipe.yaml": TRANSLATION}
        yield Case(f"compare: summary {name}", resume, ("comparison.json",), files)
    for name, (changes, told) in SUMMARIES.items():
        files = {"folder/comparison.json": json.dumps(SUMMARY | changes)}
        yield Case(f"report: summary with {name}", report, told, files)
    for name, (changes, told) in RESULTS.items():
        files = {
            "folder/comparison.json": json.dumps(SUMMARY),
            "folder/memory/result.json": json.dumps(RESULT | changes),
        }
        yield Case(f"report: result with {name}", report, told, files)
