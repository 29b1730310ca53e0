"""Tiny recipes and model settings for `benchmarks.golden`, apart from those in recipes/, which may change."""

import random
from pathlib import Path

from PIL import Image

COMMON = """
training: {updates: 20, warmup: 4, learning_rate: 0.003}
device: {kind: cpu, precision: fp32, threads: 1, deterministic: true}
run: {dir: run}
"""
MODEL = "model: {kind: transformer, width: 16, heads: 2, feedforward: 32, dropout: 0.1, "
BOTH = MODEL + "encoder_layers: 1, decoder_layers: 1}\n"
BUILT_IN = "data: {train: 400, validation: 10, test: 10}\ntokenizer: {kind: bpe, size: 400}\n"
SHORT = "decoding: {beam: 2, max_ratio: 0.5, max_extra: 2}\nvalidation: {every: 10, metric: loss}\n"
TABLE = "data: {train: texts.tsv, validation: 10, test: 10}\ntokenizer: {kind: bytes}\n"
RECIPES = {
    "translation": BUILT_IN + "batches: {tokens: 400}\n" + BOTH + SHORT,
    "text-to-text": """
data:
  corpora:
    en-de: {prefix: "to German: ", metric: bleu, source: en, target: de, train: 200, validation: 6, test: 6}
    cases: {prefix: "cases: ", metric: exact, source: de, target: cases, train: 200, validation: 6, test: 6}
tokenizer: {size: 500}
batches: {tokens: 400}
"""
    + BOTH
    + SHORT,
    "classification": TABLE
    + "batches: {tokens: 400, max_length: 100}\nvalidation: {every: 10}\n"
    + MODEL
    + "encoder_layers: 1}\n",
    "language-model": "data: {corpus: built-in, train: 300, validation: 10, test: 10}\ntokenizer: {kind: bytes}\n"
    "batches: {length: 48, tokens: 480}\nvalidation: {every: 10}\n" + MODEL + "decoder_layers: 1}\n",
    "masked-lm": TABLE
    + "batches: {tokens: 400, max_length: 60}\nvalidation: {every: 10}\n"
    + MODEL
    + "encoder_layers: 1}\n",
    "captioning": "data: {train: 100, validation: 6, test: 6, size: 16}\nstem: {size: 8}\n"
    "tokenizer: {kind: word, size: 100}\nbatches: {captions: 8}\nvalidation: {every: 10, metric: loss}\n"
    "decoding: {beam: 2, max_length: 8}\n" + BOTH,
    "images": "data: {train: images, validation: 4, test: 4, size: 12}\npatches: {size: 4}\nbatches: {images: 6}\n"
    "augmentation: {shift: 1}\nvalidation: {every: 10}\n" + MODEL + "encoder_layers: 1}\n",
    "cases": "data: {train: 400, validation: 10, test: 10, source: de, target: cases, filters: {max_ratio: null}}\n"
    "tokenizer: {kind: word, size: 2000, shared: false}\nbatches: {tokens: 400}\n"
    "model: {kind: rnn-tagger, width: 16, encoder_layers: 1}\ndecoding: {beam: 1}\nvalidation: {every: 10}\n",
}
WITHOUT_ATTENTION = ("rnn", "gru", "lstm", "mingru", "minlstm")
TRANSLATORS = (*WITHOUT_ATTENTION, "rnn-attention", "gru-attention", "lstm-attention", "conv", "transformer")
# the settings of the models' contract tests, beside their defaults
VARIANTS = (
    "transformer norm=post encoder_positions=learned decoder_positions=none tie=target",
    "transformer attention=explicit activation=gelu tie=none",
    "transformer encoder_positions=rope decoder_positions=rope heads_kind=wide",
    "transformer encoder_positions=alibi decoder_positions=alibi activation=swiglu norm_kind=rms embedding_norm=true",
    "transformer encoder_positions=relative decoder_positions=relative attention=explicit",
    "transformer encoder_positions=relative decoder_positions=rope key_value_heads=1 attention_dropout=0.1",
    "rnn bidirectional=false residual=true",
    "gru bidirectional=false decoder_layers=3",
    "lstm bidirectional=false reverse_source=true residual=true",
    "rnn-attention attention=dot tie=none",
    "gru-attention attention=concat input_feeding=true",
    "lstm-attention attention=location tie=target",
    "lstm-attention attention=additive coverage=true input_feeding=true reverse_source=false",
    "conv kernel=4 encoder_layers=2 decoder_layers=2 tie=none",
    "conv encoder_positions=none decoder_positions=sinusoidal",
    "minlstm bidirectional=false residual=true",
)
POOLINGS = ("mean", "first", "max", "last", "attention", "summary", "pooler")
OPTIMIZERS = {
    "adam": "optimizer=adam",
    "adam l1 and decay": "optimizer=adam l1=0.001 weight_decay=0.1",
    "adamw": "optimizer=adamw weight_decay=0.1 betas=[0.9,0.999] epsilon=1e-6 schedule=cosine",
    "adamw l1": "optimizer=adamw l1=0.01 schedule=linear",
    "sgd": "optimizer=sgd learning_rate=0.1",
    "sgd nesterov": "optimizer=sgd momentum=0.9 nesterov=true weight_decay=0.01 schedule=constant",
    "clip": "clip=0.01",
    "no clip": "clip=null",
    "ema": "ema=0.9",
    "average": "average_last=2",
    "smoothing": "label_smoothing=0.3",
    "accumulation": "tokens_per_update=1600 noise_scale=true",
    "freeze": 'freeze=[encoder.layers.0,"*.bias"]',
    "everything": "optimizer=adamw weight_decay=0.1 clip=0.1 ema=0.9 label_smoothing=0.2 tokens_per_update=1600",
}

# the corpora of the tasks that have none built in
WORDS = "the a old new film book dog house was is good bad great dull never always red blue seen read".split()  # noqa: SIM905


def write_corpora(folder: Path) -> None:
    """Writes a table of labelled texts and a folder of labelled images."""
    draw = random.Random(7)
    rows = []
    for n in range(120):
        text = " ".join(draw.choice(WORDS) for _ in range(draw.randint(3, 12)))
        rows.append(f"{text} {n}\t{'good' if n % 2 else 'bad'}\n")
    (folder / "texts.tsv").write_text("text\tlabel\n" + "".join(rows))
    for n in range(30):
        path = folder / "images" / ("light" if n % 2 else "dark") / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = bytes(draw.randint(*((100, 255) if n % 2 else (0, 155))) for _ in range(144))
        Image.frombytes("L", (12, 12), pixels).save(path)


def write_recipe(folder: Path, task: str) -> None:
    """Writes `recipe.yaml`."""
    kind = "translation" if task == "cases" else task
    (folder / "recipe.yaml").write_text(f"name: golden\ntask: {kind}\n{RECIPES[task]}{COMMON}")
