"""Tokenizers that come with published weights: another's pieces, under our numbers.

Our numbers begin with `<pad>`, `<s>`, `</s>` and `<unk>`; what follows are the other's pieces in their order. Text is
cut as the other does it, so that its model reads what it has learned to read.
"""

import base64
import json

import sentencepiece

_SPECIALS = 4
_UNK = 3
_SPACE = "▁"


def packed(pieces: list[str], model: bytes) -> bytes:
    """What `Published` reads: the pieces after the special ones, and sentencepiece's model that cuts text into them."""
    return json.dumps({"pieces": pieces, "model": base64.b64encode(model).decode()}, ensure_ascii=False).encode()


class Published:
    """Between text and numbers, as Marian does it: sentencepiece gives pieces, and a table of its own their numbers.

    A piece that the table lacks is unknown. A line may begin with a language, such as `>>deu<<`, which is a piece.
    """

    def __init__(self, packed: bytes) -> None:
        found = json.loads(packed)
        self._names = ["", "", "", "⁇", *found["pieces"]]
        self._numbers = {piece: number for number, piece in enumerate(self._names) if number >= _SPECIALS}
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=base64.b64decode(found["model"]))
        self.size = len(self._names)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The numbers of the pieces of each text."""
        return [self.go_on(text) for text in texts]

    def go_on(self, text: str) -> list[int]:
        """The numbers of the pieces of a text."""
        code = text[: text.find("<<") + 2] if text.startswith(">>") and "<<" in text else ""
        pieces = [code] if code else []
        pieces += self._processor.encode(text[len(code) :], out_type=str)
        return [self._numbers.get(piece, _UNK) for piece in pieces]

    def decode(self, ids: list[int]) -> str:
        """The text of pieces."""
        return self._processor.decode_pieces([self._names[i] for i in ids]).replace(_SPACE, " ").strip()

    def show(self, piece: int) -> str:
        """A piece as it is shown."""
        return self._names[piece]
