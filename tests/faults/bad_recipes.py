"""Bad recipes: invalid values, malformed overrides, and files that are no recipes."""

from collections.abc import Iterator

from tests.faults.world import CLASSIFICATION, IMAGES, MODEL, TRANSLATION, Case

# recipe: key: values that it cannot hold, as the command line gives them
VALUES: dict[str, dict[str, list[str]]] = {
    "t": {
        "training.updates": ["0", "-5", "1.5", "many", "'5'", "true", "null", ".inf"],
        "training.learning_rate": ["0", "-1", "fast", "1e999", ".nan", "true", "1e39"],
        "training.label_smoothing": ["1", "-0.1"],
        "training.betas": ["[0.9]", "0.9", "[0.9, 1.0]", "[a, b]"],
        "training.optimizer": ["sdg", "3"],
        "training.schedule": ["cosin"],
        "training.warmup": ["-1", str(10**18)],
        "training.clip": ["0", "off"],
        "training.ema": ["1", "0"],
        "training.average_last": ["0", "1000000"],
        "training.tokens_per_update": [str(2**64)],
        "model.width": ["0", "1000000", str(2 * 10**9), str(10**10)],
        "model.heads": ["0", "65537"],
        "model.feedforward": [str(10**18)],
        "model.encoder_layers": [str(10**9)],
        "model.decoder_layers": ["0", "2000"],
        "model.max_positions": [str(10**12)],
        "model.dropout": ["1", "-1"],
        "model.norm": ["per"],
        "model.kind": ["5", "null", "[a]", "transfomer", "k" * 100_000],
        "batches.tokens": ["0", str(2**70), "!!int x", "!!bool x", '!!int ""', "=._", "1e400", "{a: 1}", "2026-13-01"],
        "batches.max_length": [str(10**9)],
        "device.threads": ["0", str(2**40), str(10**9)],
        "device.kind": ["gpu"],
        "device.precision": ["fp8"],
        "device.compile": ["1", "no"],
        "data.train": ["0", str(10**15), "[a]", "[a, b, c]", "''"],
        "data.seed": ["-1", str(2**32)],
        "data.source": ["''", "5"],
        "data.filters.max_ratio": ["1", ".nan"],
        "name": ["'a b'", "''", "../x", "a" * 300, ".hidden", "5"],
        "run.dir": ["''", "5", "[a]"],
        "description": ["5"],
        "tokenizer.size": ["0", str(10**12)],
        "tokenizer.kind": ["wordpiece"],
        "tokenizer.normalization": ["nfc"],
        "decoding.beam": ["0", str(10**22)],
        "decoding.length_penalty": ["-1", "1e308"],
        "decoding.max_ratio": ["0", "101"],
        "decoding.max_extra": ["-1", "100000"],
        "decoding.batch": ["9" * 5000, "0x" + "f" * 5000, str(2**63), "[1]", "0"],
        "validation.metric": ["blue"],
        "validation.every": ["0"],
        "seeds.data": ["-1"],
        "task": ["clasification", "null", "[x]"],
        "init_from": ["''"],
    },
    "c": {
        "data.classes": ["[a]", "[a, a]", "5"],
        "data.first_label": ["2"],
        "data.text": ["[]", "''"],
        "head.pooling": ["meen"],
        "batches.max_length": ["1"],
        "batches.padding": ["bucket"],
        "training.word_dropout": ["1"],
        "training.examples_per_update": [str(10**12)],
        "validation.metric": ["bleu"],
    },
    "m": {
        "masking.share": ["0", "1", "2"],
        "masking.masked": ["-0.1", "1.5"],
        "masking.tie": ["3"],
        "batches.max_length": ["2"],
    },
    "i": {
        "data.size": ["0", "100000"],
        "data.channels": ["2"],
        "data.mean": ["[1e308]"],
        "patches.size": ["0"],
        "augmentation.crop": ["0"],
        "augmentation.shift": [str(10**6)],
        "batches.images": ["0"],
    },
    "l": {
        "data.document": ["page"],
        "batches.length": ["1"],
        "batches.across_documents": ["1"],
        "scoring.stride": ["0"],
        "scoring.context": ["1"],
        "validation.samples": ["-1"],
        "validation.metric": ["bleu"],
        "model.tie": ["all"],
    },
}

# words that are no overrides of t.yaml, and what is told of them
WORDS = {
    "no key": ("=5", "=5"),
    "no section": (".a=5", ".a=5"),
    "an unknown section": ("trainig.updates=5", "training"),
    "an unknown key": ("training.updatse=5", "updates"),
    "a key without its section": ("updates=5", "training.updates"),
    "a section as a value": ("training=5", "training"),
    "a value as a section": ("training.updates.x=1", "training.updates"),
    "another model's key": ("model.bidirectional=true", "lstm"),
    "another task's key": ("head.pooling=max", "classification"),
    "an open bracket": ("training.updates=[1", "training.updates"),
    "an open brace": ("training={", "training"),
    "an open quote": ('name="', "name"),
    "an unknown alias": ("name=*a", "name"),
    "an alias of itself": ("training.betas=&a [*a]", "training.betas"),
    "deep nesting": ("training.betas=" + "[" * 3000, "50"),
    "an object of Python": ("name=!!python/object/apply:os.system [ls]", "name"),
    "NUL": ('run.dir="a\\0b"', "U+0000"),
    "half a character": ('description="\\ud800"', "U+D800"),
    "a control character": ("name=\x07", "name"),
    "heads that do not divide": ("model.heads=3", "model"),
    "a warm-up longer than the rest": ("training.schedule=cosine", "warmup"),
    "2,000 dots": (".".join("a" * 2000) + "=1", "2,000 parts"),
    "300 dots": (".".join("a" * 300) + "=1", "300 parts"),
    "init without a run": ("init.freeze=all", "init_from"),
}

# mistakes of several sections: recipe, the override that makes one, and what is told of it
WHOLE = {
    "patches": ("i", "patches.size=3", "must divide data.size (8)"),
    "size": ("i", "data.size=7", "must divide data.size (7)"),
    "shift": ("i", "augmentation.shift=8", "must be below data.size"),
    "row": ("l", "batches.length=65", "try batches.tokens=65"),
    "stride": ("l", "scoring.stride=33", "try scoring.stride=32"),
    "mean": ("i", "data.mean=[0,1]", "write one for each channel"),
}

LAUGHS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9 if n else ['x'] * 9)}]\n" for n in range(10))
DEEP = "".join(f"{' ' * n}a:\n" for n in range(200))

# pages that are no recipes, and what is told of them
PAGES: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("bad.yaml", "empty")),
    "only a comment": ("# nothing\n", ("bad.yaml", "empty")),
    "a list": ("- a\n- b\n", ("bad.yaml", "list")),
    "a word": ("translate\n", ("bad.yaml", "single value")),
    "bytes": (b"name: \xff\xfe\n", ("bad.yaml:1", "0xff")),
    "utf-16": ("name: a\n".encode("utf-16"), ("bad.yaml:1", "UTF-8")),
    "latin-1": ("name: a\ndescription: Größe\n".encode("latin-1"), ("bad.yaml:2", "0xf6")),
    "NUL bytes": (b"name: a\0\n", ("bad.yaml:1", "U+0000")),
    "tabs": ("name: a\nmodel:\n\tkind: lstm\n", ("bad.yaml:3", "tabs")),
    "two documents": ("name: a\n---\nname: b\n", ("bad.yaml:2", "---")),
    "a key twice": (TRANSLATION + "name: u\n", ("bad.yaml", "name", "duplicate")),
    "billion laughs": (LAUGHS, ("bad.yaml", "alias")),
    "a list of a megabyte": ("name: [" + "a," * 500_000 + "]", ("bad.yaml:1", "5,000 values")),
    "3,000 brackets": ("x: " + "[" * 3000, ("bad.yaml:1", "50")),
    "200 indentations": (DEEP, ("bad.yaml", "50")),
    "an alias of itself": ("x: &a {b: *a}\n", ("bad.yaml:1", "alias")),
    "an unknown alias": ("x: *a\n", ("bad.yaml:1", "alias")),
    "an unknown tag": ("name: !mine a\n", ("bad.yaml:1", "mine")),
    "an object of Python": ("name: !!python/name:os.system\n", ("bad.yaml:1", "python")),
    "a key that is a list": ("[a, b]: c\n", ("bad.yaml:1", "key")),
    "a merge": ("base: &b {updates: 5}\ntraining: {<<: *b}\n", ("bad.yaml:2", "<<")),
    "two megabytes": ("#" * (2 << 20), ("bad.yaml", "2,097,152")),
    "an open quote": ('name: "a\n', ("bad.yaml", "not YAML")),
    "a colon too many": ("name: a: b\n", ("bad.yaml:1", "not YAML")),
    "a control character": ("name: a\x07\n", ("bad.yaml:1", "U+0007")),
    "an escape sequence as a key": ('"\\e[31m": 1\n', ("bad.yaml:1", "\\x1b[31m")),
    "a line end in a key": ('"a\\nb": 1\n', ("bad.yaml:1: a\\nb: unknown key",)),
    "half a character": ('name: "\\ud800"\n', ("bad.yaml:1", "U+D800")),
    "no name": (TRANSLATION.replace("name: t", "description: t"), ("bad.yaml:1", "name", "missing")),
    "no model": (TRANSLATION.replace(MODEL, ""), ("bad.yaml:1", "model", "missing")),
    "no kind": (TRANSLATION.replace("kind: transformer, ", ""), ("model.kind", "missing")),
    "a word for the model": (TRANSLATION.replace(MODEL, "model: transformer"), ("model", "'transformer'")),
    "a wrong kind and a wrong key": (
        TRANSLATION.replace("transformer, width", "nothing, widht"),
        ("model.kind", "'nothing'", "model.widht", "width"),
    ),
    "a near kind and a wrong key": (
        TRANSLATION.replace("transformer, width", "transfomer, widht"),
        ("transformer", "model.widht"),
    ),
    "a list for a section": (TRANSLATION + "batches: [a]\n", ("bad.yaml", "batches")),
    "an unknown task": (TRANSLATION + "task: summaries\n", ("task", "'summaries'")),
    "a key of 10,000 characters": (TRANSLATION + f"{'k' * 1000}: 1\n", ("bad.yaml", "unknown key")),
    "a thousand unknown keys": ("".join(f"k{n}: 1\n" for n in range(1000)), ("bad.yaml", "more lines")),
    "a file that is missing": (CLASSIFICATION, ("data.train", "c.tsv", "no such file")),
    "a folder that is missing": (
        TRANSLATION.replace("data: {", "data: {corpus: a/b, root: nowhere, "),
        ("data.root", "nowhere"),
    ),
    "a run that is missing": (TRANSLATION + "init_from: runs/none\n", ("init_from", "runs/none")),
}


def cases() -> Iterator[Case]:
    """All of them, through `s2s recipe validate`."""
    for recipe, keys in VALUES.items():
        for key, values in keys.items():
            for value in values:
                command = ("recipe", "validate", f"{{world}}/{recipe}.yaml", f"{key}={value}")
                shown = tuple(filter(None, [value[:5].strip("'\"[")]))
                yield Case(f"{recipe}: {key}={value[:30]}", command, ("command line", key, *shown))
    for name, (word, told) in WORDS.items():
        yield Case(f"override: {name}", ("recipe", "validate", "{world}/t.yaml", word), (told,))
    for name, (recipe, word, told) in WHOLE.items():
        command = ("recipe", "validate", f"{{world}}/{recipe}.yaml", word)
        yield Case(f"whole: {name}", command, (f"command line: {word}", told))
    many = tuple(f"training.updates{n}=1" for n in range(10_000))
    for command in (("recipe", "validate", "{world}/t.yaml"), ("compare", "rnn", "gru")):
        yield Case(f"{command[0]}: 10,000 overrides", (*command, *many), ("command line", "10,000 overrides"))
    page = IMAGES + "patches:\n  size: 3\n"
    yield Case(
        "whole: of a page",
        ("recipe", "validate", "bad.yaml"),
        (f"bad.yaml:{page.count(chr(10))}: ", "must divide"),
        {"bad.yaml": page},
    )
    for name, (page, told) in PAGES.items():
        yield Case(f"page: {name}", ("recipe", "validate", "bad.yaml"), told, {"bad.yaml": page})
