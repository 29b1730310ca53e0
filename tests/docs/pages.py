"""Table of the pages: their files, shortened settings, checks, and commands that are not executed."""

import contextlib
import csv
import gzip
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console

import s2s
from benchmarks import language_models, speedrun
from s2s.data.phrasebook import phrases
from s2s.recipe.page import read_value
from s2s.run.tasks import read
from s2s.run.training import train
from tests.docs.runner import ROOT, Code, Page, Session, blocks, execute_code, page_path, without_s2s

# oneDNN compiles a kernel for each new shape of bf16, and an untrained model does not know where to stop
BRIEF = (
    "training.updates=6 training.warmup=2 validation.every=6 validation.sentences=3 batches.tokens=600 "
    "device.precision=fp32 decoding.max_ratio=0.2 decoding.max_extra=1"
)
QUIET = Console(quiet=True)
SHALLOW = "model.width=32 model.encoder_layers=1 model.decoder_layers=1"
BUILT_IN = "data.train=300 data.validation=8 data.test=8"
TRANSLATE = f"{BUILT_IN} tokenizer.size=450 {SHALLOW} {BRIEF}"
SHORT = "training.updates=4 training.warmup=1 validation.every=2 device.threads=1"
TABLES = "data.root=files data.validation=20 tokenizer.kind=word"
TRAIN_TRANSLATE = r"^s2s train (recipes/translate.yaml|translate)\b"
FILES = f"tokenizer.size=450 {BRIEF}"
COMPARED = f"{BUILT_IN} tokenizer.size=450 {BRIEF}"


def recipes(session: Session) -> None:
    """Copies the recipes, and a lines.txt."""
    shutil.copytree(ROOT / "recipes", "recipes")
    Path("lines.txt").write_text("A dog runs.\n\nThe old man sleeps.\n", encoding="utf-8")


def parallel_text(session: Session) -> None:
    """Writes line-aligned files as those of Multi30k in files/, and a.en and a.de."""
    recipes(session)
    found = phrases("train", 300, seed=5)
    Path("files").mkdir()
    for stem, count in (("files/train", 300), ("files/val", 8), ("files/test_2016_flickr", 8), ("a", 300)):
        for side, texts in (("en", [p.source for p in found]), ("de", [p.target for p in found])):
            Path(f"{stem}.{side}").write_text("\n".join(texts[:count]) + "\n", encoding="utf-8")


def labelled_text(session: Session, folder: str = "files") -> None:
    """Writes tables with labels, as those of AG News."""
    chance = random.Random(1)
    words = ("peace vote treaty", "goal match team", "bank stock oil", "space web chip")
    Path(folder).mkdir()
    for name, count in (("train", 160), ("test", 40)):
        rows = (
            f"{n % 4 + 1}\tTitle {n}\t{' '.join(chance.choices(words[n % 4].split(), k=5))}\n" for n in range(count)
        )
        Path(f"{folder}/{name}.tsv").write_text("".join(rows))


def labelled_text_and_recipes(session: Session) -> None:
    """Writes files/*.tsv and the recipes."""
    recipes(session)
    labelled_text(session)


def reviews(lines: list[str]) -> None:
    """Writes files/train.tsv, as that of IMDb."""
    Path("files").mkdir()
    table = "".join(f"{i % 2}\t7\t{i}\t{line}\n" for i, line in enumerate(lines))
    Path("files/train.tsv").write_text(table, encoding="utf-8")


def noise(chance: np.random.Generator, path: str, height: int, width: int) -> None:
    """Writes an image."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(chance.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)


def trained(session: Session) -> None:
    """Puts a trained translator into runs/translate."""
    recipes(session)
    shutil.copytree(session.small_run, "runs/translate")


def one_worker(session: Session) -> None:
    """Lets comparisons try one learning rate and one depth, in this process."""
    session.monkeypatch.setattr("s2s.comparison.engine.number_for", lambda device_context: 1)
    one_rate(session)


def one_rate(session: Session) -> None:
    """Lets comparisons try one learning rate and one depth."""
    from s2s.comparison import tuning

    for name, value in (("RATES", (0.004,)), ("LOWEST", 0.004), ("HIGHEST", 0.004)):
        session.monkeypatch.setattr(f"s2s.comparison.tuning_search.{name}", value)
    for profile in tuning.FULL_TRIALS:
        session.monkeypatch.setitem(tuning.FULL_TRIALS, profile, 0)
    session.monkeypatch.setattr(tuning, "depths_of", lambda recipe, own: ())


def has(*names: str) -> None:
    """Checks that the runs have these names."""
    assert {path.name for path in Path("runs").iterdir()} == set(names)


# README and pages on comparisons


def _readme(session: Session) -> None:
    parallel_text(session)
    one_worker(session)


def _kept_comparison(session: Session) -> None:
    parallel_text(session)
    Path("runs").mkdir(exist_ok=True)
    Path("docs").mkdir()
    Path("docs/comparison-lecture").symlink_to(ROOT / "docs/comparison-lecture")


def _copied(session: Session, command: str) -> str:
    return str(shutil.copytree(*shlex.split(command)[2:]))


def _claims_drawn(session: Session) -> None:
    """Looks for the figure of each claim in the three formats, if the kept comparison was drawn."""
    folder = Path("runs/lecture")
    if not (folder / "report.html").exists():
        return
    with (folder / "claims.csv").open(encoding="utf-8", newline="") as file:
        evidence = [row["evidence"].split("/result.json, figure ") for row in csv.DictReader(file)]
    assert len(evidence) > 10
    for question, figure in evidence:
        for kind in ("png", "svg", "pdf"):
            assert (folder / question / f"{figure}.{kind}").is_file(), (question, figure, kind)


def _mistaken_recipe(session: Session) -> None:
    Path("mine.yaml").write_text(
        "name: mine\ndata: {corpus: built-in}\nmodel:\n  kind: transformer\n\ntraining:\n  schedule: cosin\n",
        encoding="utf-8",
    )


def _tatoeba(session: Session) -> None:
    recipes(session)
    rows = [f"{p.source}\t{p.target}\n" for p in phrases("train", 300, seed=5)]
    for split, count in (("train", 300), ("dev", 8), ("test", 8)):
        Path(f"deu-eng.{split}.tsv.gz").write_bytes(gzip.compress("".join(rows[:count]).encode()))


def _compare(session: Session) -> None:
    parallel_text(session)
    labelled_text(session, "labelled")
    one_worker(session)


CLASSIFIED = (
    "--seeds=1 data.validation=20 tokenizer.kind=word batches.tokens=600 model.width=32 model.encoder_layers=1 "
    "training.updates=4 training.warmup=2 validation.every=4"
)
COMPARE_SETTINGS = {
    r"^s2s compare (?!.*(--resume|--cost|--task|data\.root))": f"--experiment=quality --seeds=1 {COMPARED}",
    r"^s2s compare (?!.*(--resume|--cost|--task)).*data\.root": f"--experiment=quality --seeds=1 {FILES}",
    r"^s2s compare .*--task": CLASSIFIED,
    r"^s2s compare (?!.*--task).*data\.root=DIR": "data.root=files",
    r"^s2s compare .*--task.*data\.root=DIR": "data.root=labelled",
}
# one experiment shows that the command works; each has tests of its own
COMPARE_REPLACE = {r" --(experiment|seeds) \S+": ""}


# tasks


def _classified(session: Session) -> None:
    pictures = {path.name for path in Path("runs/ag_news/figures").iterdir()}
    named = re.findall(r"`(?:figures/)?([a-z-]+\.png)`", page_path("classification").read_text(encoding="utf-8"))
    assert named
    assert set(named) <= pictures


SMALL_IMAGES = "data.root=files data.validation=4 data.size=8 batches.images=8"


def _images(session: Session) -> None:
    recipes(session)
    chance = np.random.default_rng(1)
    for split, count in (("train", 12), ("test", 6)):
        for name in ("one", "two"):
            for row in range(count):
                noise(chance, f"files/{split}/{name}/{row}.png", 8, 8)
    Path("names.txt").write_text("files/test/one/0.png\n\nfiles/test/two/3.png\n")


def _images_checked(session: Session) -> None:
    has("vit_mnist", "gru_mnist", "vit_cifar10")
    assert "McNemar" in session.output("s2s evaluate runs/vit_mnist runs/gru_mnist")
    lines = session.output("s2s classify").split("\n")
    assert [line.split("\t")[0] in ("one", "two") for line in lines[:3]] == [True, False, True]


def _captions(session: Session) -> None:
    recipes(session)
    chance = np.random.default_rng(1)
    rows = ["image,caption"]
    for number in range(48):
        noise(chance, f"photos/{number}.jpg", 12, 20)
        rows += [f"{number}.jpg,A dog runs over the grass.", f"{number}.jpg,a brown dog number {number} plays"]
    for name in ("photo.png", "other.png"):
        noise(chance, name, 12, 20)
    Path("captions.csv").write_text("\n".join(rows) + "\n")
    Path("mine.yaml").write_text(blocks(page_path("captioning").read_text(encoding="utf-8"), "yaml")[0])


def _captions_checked(session: Session) -> None:
    has("captioning", "show_attend_tell", "mine")
    assert "against the first" in session.output("s2s evaluate runs/captioning runs/show_attend_tell")
    two = session.output("s2s caption runs/captioning photo.png other.png").strip().split("\n")
    assert [line.split("\t")[0] for line in two if "\t" in line] == ["photo.png", "other.png"]
    assert Path("looks.html").stat().st_size > 5000
    assert Path("looks.png").read_bytes()[:4] == b"\x89PNG"
    assert "repeated captions" in session.output("s2s data check")


def _language_models(session: Session) -> None:
    recipes(session)
    lines = [phrase.source for phrase in phrases("train", 120, seed=5)]
    reviews(lines)
    Path("mine.txt").write_text("\n".join(lines), encoding="utf-8")
    Path("prompts.txt").write_text("The\n\n", encoding="utf-8")


def _yardsticks(session: Session, command: str) -> str:
    """Compares the summary of each run with a yardstick on the same bytes, by the functions of the command."""
    runs = [Path(word) for word in command.split()[3:]]
    found = language_models.yardsticks(runs[0])
    assert 0 < found["n_gram"] < 8
    assert {"gzip -9", "bz2 -9", "xz -9e"} == set(found["compressors"])
    for run in runs:
        test = json.loads((run / "evaluation-test.json").read_text(encoding="utf-8"))
        assert language_models.summary(run)["bytes"] == found["test_bytes"] == test["bytes"]
    return str(found)


def _language_models_checked(session: Session) -> None:
    has("lm_builtin", "lm_text", "lm_text_lstm", "mine")
    assert "document: line # what a document is" in Path("mine.yaml").read_text(encoding="utf-8")


LM = f"{SHORT} validation.samples=1 batches.length=64 batches.tokens=128 tokenizer.kind=bytes model.width=16"
SMALL_TRANSFORMER = "model.heads=2 model.feedforward=32 model.decoder_layers=1"


def _masked(session: Session) -> None:
    recipes(session)
    said = [f"{one} forgot {whose} bag ." for one in ("The nurse", "My father") for whose in ("her", "his")]
    reviews([phrase.source for phrase in phrases("train", 200, seed=5)] + 20 * said)


def _biased(session: Session) -> None:
    _masked(session)
    train(read(Path("recipes/mlm_imdb.yaml"), f"{MASKED} tokenizer.size=450 batches.max_length=30".split()), QUIET)
    pairs = [
        ("The old man sleeps.", "The old woman sleeps.", "stereo", "gender"),
        ("A dog.", "A cat.", "stereo", "age"),
    ]
    with Path("crows_pairs_anonymized.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sent_more", "sent_less", "stereo_antistereo", "bias_type"), *pairs])


def _biased_checked(session: Session) -> None:
    written = {path.name for path in Path("runs/mlm_imdb").iterdir()}
    assert {f"probe-bias.{kind}" for kind in ("json", "csv", "png")} <= written


HELD_OUT = "data.root=files data.validation=10 data.test=10"
MASKED = f"{HELD_OUT} model.width=32 model.encoder_layers=1 batches.tokens=800 {SHORT}"


def _several_corpora(session: Session) -> None:
    recipes(session)
    text = "".join(f"Der alte Mann schläft {word}.\n" for word in ("hier", "dort", "heute", "nie"))
    Path("mono.de").write_text(text, encoding="utf-8")


def _several_corpora_checked(session: Session) -> None:
    has("de_en", "with_back", "many")
    (block,) = blocks(page_path("several-corpora").read_text(encoding="utf-8"), "yaml")
    Path("page.yaml").write_text(f"name: page\n{block}model: {{kind: transformer}}\n")
    data = read(Path("page.yaml")).data  # pyright: ignore[reportAttributeAccessIssue]
    assert data.weights == [2, 1, 1]
    assert (data.more["back"].target, data.more["back"].prefix) == ("de", "<bt> ")


SMALL_TEXT = (
    "training.updates=4 training.warmup=1 validation.every=4 tokenizer.size=400 model.width=16 model.heads=2 "
    "model.feedforward=16 decoding.max_ratio=0.2 decoding.max_extra=2 device.threads=1"
)
CORPUS_SIZES = " ".join(
    f"data.corpora.{name}.{split}={size}"
    for name in ("en-de", "de-en", "plural", "cases", "acceptable")
    for split, size in (("train", 100), ("validation", 4), ("test", 4))
)


def _optimizers_checked(session: Session) -> None:
    assert "gradient noise scale over the last 6 updates: " in session.output(
        "s2s train translate training.noise_scale"
    )
    assert re.search(r"[\d,]+ of [\d,]+ parameters trained", session.output("s2s train translate 'training.freeze"))


# using trained models


def _python_checked(session: Session) -> None:
    names = session.names
    assert names["updates"] == list(range(1, 51))
    assert names["looks"].kind == "cross"
    assert names["scores"].split == "test"
    assert names["mine"].loaded.path == Path("runs/mine")
    if "table" in session.outputs:
        table = names["found"].table()
        assert set(table.model) == {"rnn", "transformer"}
        assert table[table.row == "memory"].value.notna().all()
        assert Path("runs/compare-rnn-transformer/report.html").is_file()


def _python(session: Session) -> None:
    import matplotlib

    trained(session)
    one_worker(session)
    matplotlib.use("agg")


BRIEF_IN_PYTHON = f"{TRANSLATE} training.updates=50 validation.every=50 batches.tokens=100".split()
PYTHON_SETTINGS = {key: read_value(value) for key, _, value in (word.partition("=") for word in BRIEF_IN_PYTHON)}


def _export_checked(session: Session) -> None:
    from s2s.run.folder import open_run
    from s2s.run.inference import line_translator

    assert all(Path(f"translate-{kind}").is_dir() for kind in ("ct2", "int8", "onnx", "hub"))
    greedy = ["decoding.beam=1", "decoding.max_ratio=0.001", "decoding.max_extra=19"]
    translator, _ = line_translator(open_run(Path("runs/translate"), greedy), 1)
    (ours,) = translator.translate(["The small dog sees a cat."])
    # SentencePiece strips the spaces with which a translation begins that has learned little.
    for engine in ("ctranslate2", "json"):
        assert session.output(f"import {engine}\n") == f"{ours.text.lstrip()}\n"


def _own_vocabulary(session: Session) -> None:
    parallel_text(session)
    words = sorted({word for phrase in phrases("train", 300, seed=5) for word in phrase.source.split()})
    Path("glove.txt").write_text("".join(f"{word}{' 0.5' * 32}\n" for word in words), encoding="utf-8")


def _rescoring_checked(session: Session) -> None:
    before = Path("best.txt").read_text(encoding="utf-8").split("\n")
    after = session.output("s2s evaluate runs/translate --source lines.txt --hypotheses best.txt").split("\n")
    assert sorted(line.split("\t")[2:] for line in before) == sorted(line.split("\t")[2:] for line in after)


# several processes and machines


def _shell_programs(session: Session) -> None:
    recipes(session)
    Path("bin").mkdir()
    for name, line in (("torchrun", f'{sys.executable} -m torch.distributed.run "$@"'), ("srun", '"$@"')):
        Path("bin", name).write_text(f"#!/bin/sh\nexec {line}\n")
        Path("bin", name).chmod(0o755)
    slurm = {"SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "localhost"}
    for name, value in slurm.items():
        session.monkeypatch.setenv(name, value)


def _twice(session: Session, script: str) -> str:
    """Submits a Slurm script, and once more, as Slurm does after a time limit."""
    script = script.replace("run=runs/translate", "run=runs/slurm").replace('$run"', f'$run {TRANSLATE}"', 2)
    outputs = [execute_code(session, Code("bash", script), Page()) for _ in range(2)]
    assert "2 processes" in outputs[0]
    return outputs[1]


def _distributed_checked(session: Session) -> None:
    assert all("2 processes" in output for output in session.outputs.values())
    assert session.output("for node").count("update 6: validation") == 1
    assert "resuming after update 6" in session.output("#!/bin/bash")


# other tools


class _Board(contextlib.AbstractContextManager):
    """Stands in for the modules `wandb` and `mlflow`, which are not installed: notes what is logged."""

    def __init__(self) -> None:
        self.logged: dict[int, dict[str, float]] = {}
        self.saved: list[str] = []

    def __exit__(self, *error: object) -> None: ...

    def init(self, project: str, name: str, mode: str, sync_tensorboard: bool = False) -> "_Board":
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged[step] = values

    def save(self, path: str, policy: str) -> None:
        self.saved.append(path)

    def set_experiment(self, name: str) -> None: ...

    def start_run(self, run_name: str) -> "_Board":
        return self

    log_metrics, log_artifact = log, lambda self, path: self.saved.append(path)


def _other_tools(session: Session) -> None:
    _shell_programs(session)
    shutil.copytree(session.small_run, "runs/translate")
    session.monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    for name in ("wandb", "mlflow"):
        session.monkeypatch.setitem(sys.modules, name, _Board())


def _array_twice(session: Session, script: str) -> str:
    # the settings of a short training have the precision, too
    script = script.replace(' seed="$seed" device.precision=fp32', ' seed="$seed"')
    script = script.replace("train translate", f"train translate {TRANSLATE}")
    return "".join(execute_code(session, Code("bash", script), Page()) for _ in range(2))


def _completed(session: Session, command: str) -> str:
    request = "COMP_WORDS='s2s tra' COMP_CWORD=1 _S2S_COMPLETE=bash_complete s2s"
    return execute_code(session, Code("bash", f"{command}\ncomplete -p s2s\n{request}"), Page())


def _schema(session: Session, command: str) -> str:
    return execute_code(session, Code("bash", f"{command}\ncat recipe.schema.json"), Page())


def _other_tools_checked(session: Session) -> None:
    entries = [json.loads(line) for line in Path("runs/translate/metrics.jsonl").read_text("utf-8").splitlines()]
    for name in ("wandb", "mlflow"):
        board = sys.modules[name]
        assert {step: row["loss"] for step, row in board.logged.items()} == {
            e["update"]: e["loss"] for e in entries[:-1]
        }
        assert board.logged[60]["validation.loss"] == entries[-1]["validation"]["loss"]
        assert board.saved == ["runs/translate/recipe.yaml"]
    assert {path.name for path in Path("runs").iterdir()} == {"translate", "synced", "seed-3"}
    recipe = s2s.read_recipe("runs/seed-3/recipe.yaml")
    assert recipe.seeds.model_dump() == {"initialization": 3, "data": 3, "dropout": 3}
    assert "complete -o nosort -F _s2s_completion s2s\nplain,train" in session.output("eval")
    assert json.loads(session.output("s2s recipe schema"))["$schema"]


def _ray(session: Session) -> None:
    recipes(session)
    one_rate(session)
    session.names["s2s"] = s2s
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        session.names["port"] = str(free.getsockname()[1])
    session.monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{session.names['port']}")


def _ray_node(session: Session, command: str) -> str:
    """Starts a node as a process of the test, which ends it: `ray stop` would end all clusters of this machine."""
    command = command.replace("6379", session.names["port"]).replace("HOST", "127.0.0.1").replace("4 --", "1 --")
    node = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", *shlex.split(command)[1:], "--block"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    session.stack.callback(_ended, node)
    assert node.stdout
    assert any("Ray runtime started" in line for line in node.stdout)
    return "started"


def _ended(node: subprocess.Popen) -> None:
    os.killpg(node.pid, signal.SIGTERM)
    node.wait(60)
    if node.stdout:
        node.stdout.close()


def _lost_measurement(session: Session) -> None:
    path = min(Path("runs/compare-rnn-transformer/cells").rglob("*.json"))
    session.names["lost"] = path, json.loads(path.read_text())
    path.unlink()


def _cluster_checked(session: Session) -> None:
    first = session.output("s2s compare rnn")
    assert ", 2 at a time" in first
    assert "FAILED" not in first
    assert "total: 0 measurements" in session.output("s2s compare --resume")
    path, before = session.names["lost"]
    assert json.loads(path.read_text()).keys() == before.keys()
    assert Path("runs/compare-rnn-transformer/report.html").exists()


def _speedrun_checked(session: Session) -> None:
    found = speedrun.entry([Path(f"runs/fast-seed{seed}") for seed in (1, 2, 3)], "no change", "no score", "a test")
    assert found["corpus"] == "built-in"
    assert len(found["bleu"]) == len(found["seconds"]) == 3
    assert found["target_tokens"] > 0
    assert not speedrun.is_record(found)
    assert "no change" in speedrun.tables([found])
    # a run that was resumed is named by the command that began it
    manifest = Path("runs/fast-seed1/manifest.json")
    starts = json.loads(manifest.read_text(encoding="utf-8"))
    resumed = {**starts[-1], "command": ["s2s", "train", "runs/fast-seed1", "--resume"]}
    manifest.write_text(json.dumps([*starts, resumed]), encoding="utf-8")
    again = speedrun.entry([manifest.parent], "no change", "no score", "a test")
    assert again["command"] == found["command"] != "s2s train runs/fast-seed1 --resume"


_OTHER_TEST = "executed by {}, which lays out its files"


def _beginnings(session: Session) -> None:
    """Lays out a trained run, and a file of beginnings for lines.txt."""
    trained(session)
    Path("beginnings.txt").write_text("Der\n\nDie\n", encoding="utf-8")


PAGES = {
    "README": Page(
        prepare=_readme,
        settings={
            TRAIN_TRANSLATE: TRANSLATE,
            **COMPARE_SETTINGS,
        },
        slow=r"^s2s compare",
    ),
    "adding-a-model": Page(not_executed={"": _OTHER_TEST.format("tests/test_adding_a_model.py")}),
    "adding-a-question": Page(not_executed={"": _OTHER_TEST.format("tests/compare/test_adding_a_question.py")}),
    "adding-a-task": Page(not_executed={"": _OTHER_TEST.format("tests/test_adding_a_task.py")}),
    "attention-by-hand": Page(),
    "bias-probe": Page(prepare=_biased, check=_biased_checked),
    "captioning": Page(
        slow="",
        prepare=_captions,
        settings={
            "^s2s train": f"{SHORT} training.updates=2 model.width=16",
            "^s2s train recipes": "data.train=40 data.validation=4 data.test=12 batches.captions=16",
            "^s2s train mine": "tokenizer.kind=word data.size=16",
        },
        check=_captions_checked,
    ),
    "classification": Page(
        prepare=labelled_text_and_recipes,
        settings={
            "^s2s data check": TABLES.rpartition(" ")[0],
            "^s2s train(?!.*--resume)": f"{TABLES} batches.tokens=600 model.width=16 model.encoder_layers=1 {SHORT}",
        },
        check=_classified,
    ),
    "cluster": Page(
        prepare=_ray,
        settings={"^s2s compare rnn": f"--experiment=quality --seeds=1 {COMPARED} device.threads=1"},
        before={r"\.run\(": _lost_measurement},
        execute={"^ray start": _ray_node},
        slow="",
        needs=("ray",),
        check=_cluster_checked,
    ),
    "compare": Page(prepare=_compare, settings=COMPARE_SETTINGS, replace=COMPARE_REPLACE, slow=""),
    "comparison": Page(
        prepare=_kept_comparison,
        settings={
            "^s2s compare": "--cost tokenizer.size=450",
            r"^s2s compare (?!.*data\.root)": BUILT_IN,
            r"data\.root=DIR": "data.root=files",
        },
        execute={"^cp -r docs": _copied},
        slow="^(cp -r docs|s2s report)",
        check=_claims_drawn,
    ),
    "data": Page(prepare=_tatoeba, settings={"^s2s data check": BUILT_IN}),
    "decoding": Page(prepare=_beginnings),
    "diagnose": Page(prepare=recipes, settings={TRAIN_TRANSLATE: TRANSLATE}),
    "distributed": Page(
        prepare=_shell_programs,
        replace={"recipes/translate.yaml": f"recipes/translate.yaml {TRANSLATE}"},
        # the training above is in the way
        before={"^for node": lambda session: shutil.rmtree("runs/translate")},
        execute={"^#!/bin/bash": _twice},
        not_executed={"node0:29500": "needs two machines; the next block is the same on one"},
        slow="",
        check=_distributed_checked,
    ),
    # the first setting of a key holds
    "ensembles": Page(
        slow="",
        settings={r"^s2s train .*run.dir=runs/averaged": "validation.every=3", TRAIN_TRANSLATE: TRANSLATE},
    ),
    "export": Page(
        prepare=trained,
        execute={"import (ctranslate2|onnxruntime)": lambda session, block: without_s2s(block)},
        slow="",
        needs=("ctranslate2", "onnxruntime", "onnxscript"),
        check=_export_checked,
    ),
    "fits-into-your-tools": Page(
        prepare=_other_tools,
        replace={
            "--logdir": "--inspect --logdir",
            r'{"run.dir": "runs/synced"}': repr(PYTHON_SETTINGS | {"run.dir": "runs/synced", "device.threads": 1}),
        },
        execute={"^#!/bin/bash": _array_twice, "^eval": _completed, "recipe schema": _schema},
        slow="",
        check=_other_tools_checked,
    ),
    "gpu": Page(
        not_executed={
            "^S2S_TEST_DEVICE": "needs a GPU",
            "python -m pip download": "needs a package index",
            "/tmp/site": "needs a machine with a GPU and the files of the block above",
        }
    ),
    "images": Page(
        slow="",
        prepare=_images,
        settings={
            "^s2s data check": "data.root=files data.validation=4",
            "^s2s train": f"{SMALL_IMAGES} model.width=16 model.encoder_layers=1 {SHORT}",
            # heads divide the width
            "vit_cifar10": "model.heads=2",
        },
        check=_images_checked,
    ),
    "labs/index": Page(
        settings={"s2s train translate": TRANSLATE},
        not_executed={
            r"^pip install jupyterlab|^jupyter lab|^cd docs/labs": "tests/docs/test_labs.py executes the notebooks"
        },
    ),
    "ladder": Page(
        slow="",
        prepare=parallel_text,
        settings={
            "multi30k_lstm_attention": f"data.root=files data.filters.max_words=50 {FILES}",
            "cases": f"{BUILT_IN} {BRIEF}",
        },
    ),
    "language-models": Page(
        slow="",
        prepare=_language_models,
        settings={
            "^s2s train": LM,
            "^s2s train (?!.*lstm)": SMALL_TRANSFORMER,
            "lm_builtin.yaml": "data.train=80 data.validation=4 data.test=6",
            "^s2s train recipes/lm_text.yaml": "data.root=files data.validation=6 data.test=6",
            "^s2s train mine.yaml": "data.validation=6 data.test=6",
            "^s2s generate (?!.*--max-tokens)": "--max-tokens=8",
        },
        execute={"benchmarks.language_models": _yardsticks},
        check=_language_models_checked,
    ),
    "looking-inside": Page(
        slow="",
        prepare=recipes,
        settings={r"^s2s train": f"{BUILT_IN} tokenizer.size=200 {SHALLOW} {BRIEF}"},
        not_executed={"bertviz": "needs a notebook and the package bertviz"},
    ),
    "masked-lm": Page(
        slow="",
        prepare=_masked,
        settings={
            "^s2s train": MASKED,
            "^s2s train recipes/mlm_imdb": "tokenizer.size=450 batches.max_length=30",
            "^s2s train recipes/imdb_pretrained": "batches.max_length=40",
            "^s2s data": f"{HELD_OUT} tokenizer.size=450",
        },
        not_compared={"^s2s fill": "the page shows the probabilities of a whole training"},
        check=lambda session: has("mlm_imdb", "imdb_pretrained", "frozen", "slower"),
    ),
    "metrics": Page(
        prepare=trained,
        not_executed={"^s2s evaluate --hyp|^from collections": _OTHER_TEST.format("tests/test_adding_a_metric.py")},
    ),
    "own-vocabulary": Page(prepare=_own_vocabulary, settings={TRAIN_TRANSLATE: TRANSLATE}),
    "pretrained-weights": Page(
        not_executed={
            "opus": _OTHER_TEST.format("tests/run/test_published.py"),
            "bert|classifier": _OTHER_TEST.format("tests/run/test_published_bert.py"),
        }
    ),
    "python": Page(
        prepare=_python,
        replace={r'{"training\.updates": .*"name": "mine"}': str(PYTHON_SETTINGS | {"name": "mine"})},
        slow="s2s.compare|s2s.Comparison",
        check=_python_checked,
    ),
    "reproductions": Page(slow="radius"),
    "rescoring": Page(prepare=trained, check=_rescoring_checked),
    "resuming": Page(prepare=recipes, settings={TRAIN_TRANSLATE: TRANSLATE, "--resume training": "training.updates=8"}),
    "serving": Page(
        not_executed={
            "s2s serve": _OTHER_TEST.format("tests/serving/test_docs_serving.py"),
            "^curl": _OTHER_TEST.format("tests/serving/test_docs_serving.py"),
            "^docker ": _OTHER_TEST.format("tests/test_docker.py"),
        }
    ),
    "several-corpora": Page(
        prepare=_several_corpora,
        settings={"^s2s train": f"{SMALL_TEXT} data.train=100 data.validation=4 data.test=4"},
        replace={r"train: \d+": "train: 100"},
        slow="",
        check=_several_corpora_checked,
    ),
    "speed": Page(),
    "speedrun": Page(slow="", settings={TRAIN_TRANSLATE: TRANSLATE}, check=_speedrun_checked),
    "subword-regularization": Page(slow="", settings={TRAIN_TRANSLATE: TRANSLATE}),
    "ten-minutes": Page(
        prepare=parallel_text,
        settings={
            TRAIN_TRANSLATE: TRANSLATE,
            # to learn 16 pairs by heart
            "mine.yaml --overfit": f"{SHALLOW} model.dropout=0.0 decoding.max_ratio=2 {FILES}",
            "mine.yaml$": f"{SHALLOW} {FILES}",
        },
        replace={"--logdir": "--inspect --logdir"},
        slow="",
    ),
    "text-to-text": Page(
        prepare=recipes,
        settings={
            "^s2s train": SMALL_TEXT,
            # a corpus that the command gives itself has sizes of its own
            r"^s2s train (?!.*data\.corpora=)": CORPUS_SIZES,
        },
        slow="",
    ),
    "training": Page(
        slow="",
        settings={TRAIN_TRANSLATE: TRANSLATE},
        replace={r"\$rate": "0.003"},
        before={r"^s2s train mine\.yaml": _mistaken_recipe},
        check=_optimizers_checked,
    ),
    "variants": Page(slow="", settings={TRAIN_TRANSLATE: TRANSLATE}),
}
