"""CTranslate2 alone: the model that s2s exports, asked for pieces by pieces, as its own documentation shows."""

from typing import Any

from benchmarks.peers.task import BATCH, BEAM, PENALTY, lines
from benchmarks.peers.turns import Given, decode


def options() -> dict[str, Any]:
    """The arguments of `ctranslate2.Translator.translate_batch`."""
    return {"beam_size": BEAM, "max_batch_size": BATCH, "length_penalty": PENALTY}


def main() -> None:
    from ctranslate2 import Translator

    given = Given.read()
    folder = str(given.task.export(given.form))
    # a batch to each thread: a fifth to four times faster here than all threads in one batch
    translator = Translator(folder, device="cpu", inter_threads=given.threads, intra_threads=1)
    sources = [text.split(" ") for text in lines(given.task.side("test", "en"))]
    found = options()

    def translate() -> list[str]:
        return [" ".join(each.hypotheses[0]) for each in translator.translate_batch(sources, **found)]

    decode(given, translate)


if __name__ == "__main__":
    main()
