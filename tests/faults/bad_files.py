"""Bad files: damaged, endless, empty or of another kind."""

import gzip
import io
import lzma
import struct
import zlib
from collections.abc import Iterator, Mapping

from tests.faults.world import (
    CLASSIFICATION,
    IMAGES,
    MASKED,
    TRANSLATION,
    Case,
    Content,
    broken,
    directory,
    fifo,
    idx,
    packed,
    written,
    zero,
)

LINES = "".join(f"a line of text {n}\n" for n in range(30))
PAIR = "data.corpus=files data.train=[a.en,a.de] data.validation=2 data.test=null"
TSV = "data.corpus=files data.train=a.tsv data.validation=2 data.test=null"
ROWS = "en\tde\n" + "".join(f"one {n}\teins {n}\n" for n in range(30))

# overrides of the translation recipe, its files, and what `s2s train` tells
CORPORA: dict[str, tuple[str, Mapping[str, Content], tuple[str, ...]]] = {
    "unequal": (PAIR, {"a.en": LINES, "a.de": "x\n"}, ("a.en has 30 lines", "a.de has 1")),
    "one missing": (PAIR, {"a.en": LINES}, ("a.de", "no such file")),
    "both missing": (PAIR, {}, ("a.en", "no such file")),
    "a folder missing": ("data.corpus=files data.train=[b/a.en,b/a.de]", {}, ("b/a.en", "no folder")),
    "a folder for a file": (PAIR, {"a.en": directory, "a.de": LINES}, ("a.en", "is a folder")),
    "a pipe for a file": (PAIR, {"a.en": fifo, "a.de": LINES}, ("a.en", "pipe")),
    "a device for a file": (PAIR, {"a.en": LINES, "a.de": zero}, ("a.de", "device")),
    "latin-1": (PAIR, {"a.en": LINES, "a.de": LINES.encode() + b"gr\xfc\xdfe\n"}, ("a.de:31", "0xfc", "iconv")),
    "utf-16": (PAIR, {"a.en": LINES, "a.de": LINES.encode("utf-16")}, ("a.de:1", "UTF-16", "ff fe", "iconv -f UTF-16")),
    "utf-16 without a mark": (PAIR, {"a.en": LINES, "a.de": LINES.encode("utf-16-le")}, ("a.de:1", "UTF-16LE")),
    "a link to nothing": (PAIR, {"a.en": LINES, "a.de": broken}, ("a.de", "is a link to gone")),
    "empty files": (PAIR, {"a.en": "", "a.de": ""}, ("a.en", "no rows")),
    "blank targets": (PAIR, {"a.en": LINES, "a.de": "\n" * 30}, ("data.", "hold")),
    "blank sources": (PAIR, {"a.en": " \n" * 30, "a.de": LINES}, ("data.", "hold")),
    "no gzip": (PAIR.replace("a.en", "a.en.gz"), {"a.en.gz": LINES, "a.de": LINES}, ("a.en.gz", "damaged")),
    "half a gzip": (PAIR.replace("a.en", "a.en.gz"), {"a.en.gz": packed(LINES)[:40], "a.de": LINES}, ("a.en.gz",)),
    "no xz": (PAIR.replace("a.en", "a.en.xz"), {"a.en.xz": LINES, "a.de": LINES}, ("a.en.xz", "damaged")),
    "half an xz": (
        PAIR.replace("a.en", "a.en.xz"),
        {"a.en.xz": lzma.compress(LINES.encode())[:50], "a.de": LINES},
        ("a.en.xz", "damaged"),
    ),
    "a damaged second xz": (
        PAIR.replace("a.en", "a.en.xz"),
        {"a.en.xz": lzma.compress(LINES.encode()) + b"X" + lzma.compress(LINES.encode())[1:], "a.de": LINES},
        ("a.en.xz", "damaged"),
    ),
    "a bomb of gzip": (
        PAIR.replace("a.en", "a.en.gz"),
        {"a.en.gz": written(lambda: gzip.compress(bytes(32 << 20))), "a.de": LINES},
        ("a.en.gz:1", "16 MiB"),
    ),
    "a bomb of xz": (
        TSV.replace("tsv", "tsv.xz"),
        {"a.tsv.xz": written(lambda: lzma.compress(bytes(32 << 20), preset=0))},
        ("a.tsv.xz:1", "16 MiB"),
    ),
    "a bomb of parquet": (
        TSV.replace("tsv", "parquet.gz"),
        {"a.parquet.gz": written(lambda: gzip.compress(bytes(32 << 20)))},
        ("a.parquet.gz", "parquet"),
    ),
    "too few to hold out": (PAIR.replace("=2", "=30"), {"a.en": LINES, "a.de": LINES}, ("30", "data.validation")),
    "far too few": (PAIR.replace("=2", "=9000000"), {"a.en": LINES, "a.de": LINES}, ("9,000,000", "hold out")),
    "filtered away": (PAIR + " data.filters.max_words=1", {"a.en": LINES, "a.de": LINES}, ("max_words: 28", "loosen")),
    "no table": ("data.corpus=files data.train=a.txt", {"a.txt": LINES}, ("a.txt", "a tab between them")),
    "a number of files": ("data.corpus=files data.train=5", {}, ("data.train is 5", "name a file")),
    "a pair built in": ("data.train=[a,b]", {}, ("data.train", "built-in")),
    "a split built in": ("data.train=trian", {}, ("'trian'", "built-in")),
    "a language built in": ("data.source=fr", {}, ("'fr'", "en, de")),
    "a corpus built in": ("data.corpus=builtin", {}, ("data.train is 40", "did you mean data.corpus=built-in?")),
    "a pair of the hub": ("data.corpus=x/y data.train=[a,b]", {}, ("data.train", "'x/y'")),
    "a folder of the hub": ("data.corpus=x/y data.root=gone data.train=train", {}, ("data.root", "gone")),
    "an empty folder": (
        "data.corpus=x/y data.root=r data.train=train",
        {"r": directory},
        ("data.root", "train.en", "nothing"),
    ),
    "several tests": (
        "data.corpus=x/y data.root=r data.train=train data.validation=2 data.test=test",
        {f"r/{n}.{e}": LINES for n in ("train", "test_a", "test_b") for e in ("en", "de")},
        ("test_a, test_b", "data.test"),
    ),
    "no column": (TSV, {"a.tsv": ROWS.replace("de\n", "fr\n", 1)}, ("a.tsv:1", "'de'")),
    "a near column": (TSV + " data.target=dee", {"a.tsv": ROWS}, ("'dee'", "did you mean de?")),
    "a column of 5,000 digits": (TSV + f" data.source={'9' * 4000!r}", {"a.tsv": ROWS}, ("a.tsv:1", "999")),
    "a column beyond": (TSV + " data.source='0' data.target='7'", {"a.tsv": ROWS}, ("a.tsv:1", "column 7", "2 cells")),
    "a ragged row": (TSV, {"a.tsv": ROWS + "x\n"}, ("a.tsv:32", "has 1 cell", "expected 2")),
    "a carriage return": (TSV, {"a.tsv": ROWS.replace("\n", "\r\n")}, ("a.tsv:1", "carriage return")),
    "an empty table": (TSV, {"a.tsv": ""}, ("a.tsv", "no rows")),
    "only a header": (TSV, {"a.tsv": "en\tde\n"}, ("a.tsv", "no rows")),
    "a folder for a table": (TSV, {"a.tsv": directory}, ("a.tsv", "is a folder")),
    "old line ends": (
        TSV.replace("tsv", "csv"),
        {"a.csv": "en,de\ra,b\r"},
        ("a.csv:1", "carriage return", "convert the line ends"),
    ),
    "an open quote": (TSV.replace("tsv", "csv"), {"a.csv": 'en,de\n"a,b\n'}, ("a.csv:2", "not CSV")),
    "text after a quote": (TSV.replace("tsv", "csv"), {"a.csv": 'en,de\n"a"b,c\n'}, ("a.csv:2", "not CSV")),
    "no JSON": (TSV.replace("tsv", "jsonl"), {"a.jsonl": "{\n"}, ("a.jsonl:1", "not JSON")),
    "a JSON list": (TSV.replace("tsv", "jsonl"), {"a.jsonl": "[1]\n"}, ("a.jsonl:1", "object")),
    "deep JSON": (TSV.replace("tsv", "jsonl"), {"a.jsonl": "[" * 100_000}, ("a.jsonl:1", "JSON")),
    "JSON without a column": (TSV.replace("tsv", "jsonl"), {"a.jsonl": '{"en": "a"}\n'}, ("a.jsonl:1", "'de'")),
    "a JSON number": (TSV.replace("tsv", "jsonl"), {"a.jsonl": '{"en": "a", "de": 5}\n'}, ("a.jsonl:1", "de is 5")),
    "half a character": (
        TSV.replace("tsv", "jsonl"),
        {"a.jsonl": '{"en": "a", "de": "\\ud800"}\n'},
        ("a.jsonl:1", "ud800"),
    ),
    "no parquet": (TSV.replace("tsv", "parquet"), {"a.parquet": LINES}, ("a.parquet", "not parquet")),
    "too few pieces": (
        PAIR + " tokenizer.kind=bpe tokenizer.size=9",
        {"a.en": LINES, "a.de": LINES},
        ("tokenizer.size", "9 tokens"),
    ),
    "no room for words": (
        PAIR + " tokenizer.kind=word tokenizer.size=4",
        {"a.en": LINES, "a.de": LINES},
        ("tokenizer.size", "4 tokens"),
    ),
    "all too long": (PAIR + " batches.max_length=2", {"a.en": LINES, "a.de": LINES}, ("batches.max_length",)),
    "a tagger's lengths": ("model.kind=rnn-tagger", {}, ("rnn-tagger", "differ in length")),
    "no such run to begin with": ("init_from=runs/none", {}, ("runs/none",)),
    "a recipe to begin with": ("init_from={world}/t.yaml", {}, ("t.yaml",)),
}

LABELS = "text\tlabel\n" + "".join(f"text {n}\t{'good' if n % 2 else 'bad'}\n" for n in range(30))
# the same of classification
LABELLED: dict[str, tuple[str, Content, tuple[str, ...]]] = {
    "no label column": ("", LABELS.replace("label", "class", 1), ("c.tsv:1", "'label'")),
    "no text column": ("", LABELS.replace("text", "words", 1), ("c.tsv:1", "'text'")),
    "an empty label": ("", LABELS + "x\t\n", ("c.tsv:32", "no label")),
    "a label with a space": ("", LABELS + "x\tgood \n", ("c.tsv:32", "'good '")),
    "a label nobody sees": ("", LABELS + "x\tgo\u200bod\n", ("c.tsv:32", "invisible")),
    "a long label": ("", LABELS + f"x\t{'l' * 4097}\n", ("c.tsv:32", "4,097 characters")),
    "many long labels": (
        "",
        "text\tlabel\n" + "".join(f"x{n}\t{'l' * 4000}{n % 270}\n" for n in range(540)),
        ("runs/c", "could not be read again", "1,0"),
    ),
    "one class": ("", LABELS.replace("good", "bad"), ("data.label", "only one class, 'bad'")),
    "a thousand classes": ("", "text\tlabel\n" + "".join(f"x\tc{n}\n" for n in range(1001)), ("data.label", "1,001")),
    "an unknown class": ("data.classes=[good,evil]", LABELS, ("'bad'", "good, evil")),
    "a number beyond": ("data.classes=[good,bad]", LABELS + "x\t7\n", ("'7'", "c.tsv:32")),
    "too few to hold out": ("data.validation=30", LABELS, ("data.validation: 30",)),
    "an empty table": ("", "", ("c.tsv", "no rows")),
    "a pipe": ("", fifo, ("c.tsv", "pipe")),
    "a device": ("", zero, ("c.tsv", "device")),
    "short positions": (
        "model.encoder_positions=learned model.max_positions=5",
        LABELS,
        ("model.max_positions", "5 positions"),
    ),
}


# tables of masked-language modelling
TEXTS: dict[str, tuple[Content, str]] = {
    "empty": ("", "c.tsv"),
    "no column": ("a\tb\nc\td\n", "c.tsv:1"),
    "a pipe": (fifo, "c.tsv"),
    "blank": ("text\tx\n" + " \t \n" * 20, "data"),
}


def png(width: int, height: int, bits: int = 1) -> bytes:
    """A PNG file of grey pixels, all black."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        """A part with its length and its checksum."""
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows, packer = (width * bits + 7) // 8 + 1, zlib.compressobj(9)
    packed_rows = b"".join(packer.compress(bytes(rows)) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed_rows) + chunk(b"IEND", b"")


def _drawn(mode: str, kind: str, colour: object) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new(mode, (8, 8), colour).save(file, kind)  # type: ignore[arg-type]
    return file.getvalue()


SMALL = png(8, 8, 8)
POSTSCRIPT = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n"
# a file among images, its content, and what is told
PICTURES: dict[str, tuple[str, Content, tuple[str, ...]]] = {
    "a bomb": ("bomb.png", written(lambda: png(20_000, 20_000)), ("bomb.png", "20,000 x 20,000")),
    "a smaller bomb": ("bomb.png", written(lambda: png(12_000, 12_000)), ("bomb.png", "12,000 x 12,000")),
    "PostScript": ("page.png", POSTSCRIPT, ("page.png", "no whole image")),
    "text": ("text.png", "no image", ("text.png", "PNG")),
    "nothing": ("empty.jpg", "", ("empty.jpg",)),
    "half of one": ("half.png", SMALL[:44], ("half.png",)),
    "a damaged one": ("bad.png", SMALL[:45] + b"xxxxx" + SMALL[50:], ("bad.png",)),
    "a transparent one": ("glass.png", _drawn("RGBA", "PNG", (0, 0, 0, 0)), ("glass.png", "transparent")),
    "32 bits": ("deep.tif", _drawn("I", "TIFF", 5), ("deep.tif", "32 bits")),
    "half a TIFF": ("half.tif", _drawn("RGB", "TIFF", (9, 9, 9))[:120], ("half.tif", "no whole image")),
    "a pipe": ("pipe.png", fifo, ("pipe.png", "not a regular file")),
    "a device": ("zero.png", zero, ("zero.png", "not a regular file")),
    "a folder": ("folder.png", directory, ("folder.png", "is a folder")),
}
DIGITS, NUMBERS = idx(bytes(64 * 4), 4, 8, 8), idx(bytes([0, 1, 0, 1]), 4)
# two IDX files, and what is told
IDX: dict[str, tuple[Content, Content, tuple[str, ...]]] = {
    "images missing": (directory, NUMBERS, ("x.idx", "is a folder")),
    "another magic": (b"\x89PNG", NUMBERS, ("x.idx", "0x89504e47")),
    "the wrong way round": (NUMBERS, DIGITS, ("x.idx", "holds labels")),
    "a short head": (DIGITS[:9], NUMBERS, ("x.idx", "within its head")),
    "too short": (DIGITS[:-1], NUMBERS, ("x.idx", "255", "256")),
    "too long": (DIGITS + b"x", NUMBERS, ("x.idx", "more than its head")),
    "a bomb": (written(lambda: gzip.compress(DIGITS + bytes(50_000_000))), NUMBERS, ("x.idx", "more than its head")),
    "a promise": (idx(b"", 2**32 - 1, 2**16, 2**16), NUMBERS, ("x.idx", "too small", "4294967295")),
    "half a gzip": (gzip.compress(DIGITS)[:-9], NUMBERS, ("x.idx", "cannot be read")),
    "other labels": (DIGITS, idx(bytes(3), 3), ("4 images", "3 labels")),
    "a pipe": (fifo, NUMBERS, ("x.idx", "pipe")),
    "a device": (DIGITS, zero, ("y.idx", "device")),
    "no images": (idx(b"", 0, 8, 8), idx(b"", 0), ("x.idx", "has no images")),
}
# tables of sentence pairs for the probe of bias
HEAD = "sent_more,sent_less,stereo_antistereo,bias_type\n"
PAIRS: dict[str, tuple[Content, tuple[str, ...]]] = {
    "no column": ("a,b\n", ("p.csv", "sent_more")),
    "no pairs": (HEAD, ("p.csv", "no pairs")),
    "a direction": (HEAD + "a,b,sideways,gender\n", ("p.csv:2", "'sideways'")),
    "a long sentence": (HEAD + f"a,b,stereo,gender\n{'x' * 70_000},b,stereo,gender\n", ("p.csv:3", "70,00")),
    "an empty sentence": (HEAD + ",b,stereo,gender\n", ("p.csv:2", "empty")),
    "latin-1": (HEAD.encode() + b"\xfc,b,stereo,gender\n", ("p.csv", "utf-8")),
    "a pipe": (fifo, ("p.csv", "pipe")),
    "a device": (zero, ("p.csv", "device")),
}
# files for `s2s new translate`
OWN: dict[str, tuple[Mapping[str, Content], tuple[str, ...]]] = {
    "missing": ({"a.en": LINES}, ("a.de",)),
    "unequal": ({"a.en": LINES, "a.de": "x\n"}, ("30 lines", "1")),
    "too few": ({"a.en": "x\n", "a.de": "y\n"}, ("a.en", "1 ")),
    "a folder": ({"a.en": directory, "a.de": LINES}, ("a.en", "is a folder")),
    "a pipe": ({"a.en": fifo, "a.de": LINES}, ("a.en", "pipe")),
    "a device": ({"a.en": LINES, "a.de": zero}, ("a.de", "device")),
    "a recipe that is there": ({"a.en": LINES, "a.de": LINES, "mine.yaml": "x"}, ("mine.yaml", "--overwrite")),
}


def cases() -> Iterator[Case]:
    """All of them."""
    for name, (words, files, told) in CORPORA.items():
        command = ("train", "x.yaml", *words.split(" "))
        yield Case(f"corpus: {name}", command, told, {"x.yaml": TRANSLATION, **files})
    for name, (words, table, told) in LABELLED.items():
        files = {"x.yaml": CLASSIFICATION, "c.tsv": table}
        yield Case(f"labelled: {name}", ("train", "x.yaml", *words.split()), told, files)
    for name, (table, told) in TEXTS.items():
        yield Case(f"masked: {name}", ("train", "x.yaml"), (told,), {"x.yaml": MASKED, "c.tsv": table})
    for name, (file, content, told) in PICTURES.items():
        files = {"x.yaml": IMAGES, **{f"i/{c}/{n}.png": SMALL for c in "ab" for n in range(4)}, f"i/b/{file}": content}
        yield Case(f"image: {name}", ("train", "x.yaml"), told, files)
        if name not in ("a bomb", "a device"):
            told = ("class/" + file, *told[1:])
            words = ("classify", "{world}/runs/i", "--input", "lines")
            files = {f"class/{file}": content, "lines": f"class/{file}\n"}
            yield Case(f"classify: {name}", words, told, files, status=1)
    for name, (images, labels, told) in IDX.items():
        words = ("train", "x.yaml", "data.train=[x.idx,y.idx]")
        yield Case(f"idx: {name}", words, told, {"x.yaml": IMAGES, "x.idx": images, "y.idx": labels})
    for name, (table, told) in PAIRS.items():
        yield Case(f"pairs: {name}", ("evaluate", "{world}/runs/m", "--bias", "p.csv"), told, {"p.csv": table})
    for name, (files, told) in OWN.items():
        yield Case(f"new: {name}", ("new", "translate", "--source", "a.en", "--target", "a.de"), told, files)
    told = ("\\udce9", "UTF-8", "rename")
    for name, words in {"translate": ("--data", "caf\udce9.tsv"), "text": ("--data", "caf\udce9.tsv")}.items():
        table = "source\ttarget\n" + "".join(f"a{n}\tb{n}\n" for n in range(30))
        yield Case(f"new: a name in latin-1, {name}", ("new", name, *words), told, {"caf\udce9.tsv": table})
    for kind, name in (("t", "translate"), ("c", "classify")):
        files = {"caf\udce9": "the cat\n"}
        told = ("caf\\udce9", "not UTF-8 at character 4")
        yield Case(
            f"{name}: a file's name in latin-1 for a text", (name, f"{{world}}/runs/{kind}", "caf\udce9"), told, files
        )
    yield Case(
        "train: a folder in latin-1",
        ("train", "\udce9/x.yaml"),
        ("data.train", "\\udce9", "rename"),
        {"\udce9/x.yaml": CLASSIFICATION, "\udce9/c.tsv": "a\tb\n"},
    )
    yield Case(
        "fill: words in latin-1",
        ("fill", "{world}/runs/m", "___", "--words", "a\udce9/b"),
        ("not UTF-8 at character 2",),
    )
    long = "x" * 300 + "\udce9"
    yield Case(
        "translate: a long text in latin-1", ("translate", "{world}/runs/t", long), ("not UTF-8 at character 301",)
    )
    yield Case(
        "classify: missing",
        ("classify", "{world}/runs/i", "--input", "l"),
        ("gone.png",),
        {"l": "gone.png\n"},
        status=1,
    )
    yield Case("images: no folders", ("train", "x.yaml"), ("folders of classes",), {"x.yaml": IMAGES, "i/1.png": SMALL})
    yield Case("images: no folder", ("train", "x.yaml"), ("no such folder",), {"x.yaml": IMAGES})
    yield Case("images: patches", ("train", "{world}/i.yaml", "patches.size=3"), ("patches.size", "1, 2, 4, 8"))
    for name, word in {"a line without end": "/dev/zero", "a folder": "{world}"}.items():
        told = ("/dev/zero", "line") if word == "/dev/zero" else ("--input",)
        yield Case(f"translate: {name}", ("translate", "{world}/runs/t", "--input", word), told)
