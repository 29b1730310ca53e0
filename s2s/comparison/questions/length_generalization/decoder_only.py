"""A language model as an encoder-decoder model: the source is the beginning of the text that it continues."""

from dataclasses import dataclass

from s2s.models.base import BatchedState, Decoder, Encoder, EncoderOutput, Seq2Seq
from s2s.models.language_model import CausalDecoder, LanguageModel
from s2s.nn.layers import PaddingMask, States, Tokens, Vectors


@dataclass(frozen=True)
class _Prefix(EncoderOutput):
    state: BatchedState  # after the source


class _PrefixEncoder(Encoder):
    def __init__(self, decoder: CausalDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, source: Tokens, valid: PaddingMask) -> _Prefix:
        states, state = self.decoder(self.decoder.start(len(source), separate_documents=False), source)
        return _Prefix(states, valid, states[:, -1], state)

    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        raise NotImplementedError("a language model reads tokens")


class _PrefixDecoder(Decoder[EncoderOutput, BatchedState]):
    def __init__(self, decoder: CausalDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def start(self, memory: EncoderOutput, limit: int) -> tuple[EncoderOutput, BatchedState]:
        if not isinstance(memory, _Prefix):
            raise TypeError("the source was read by another encoder")
        return memory, memory.state

    def forward(self, context: EncoderOutput, state: BatchedState, tokens: Tokens) -> tuple[Vectors, BatchedState]:
        return self.decoder(state, tokens)


def decoder_only(model: LanguageModel) -> Seq2Seq:
    """Return a language model as an encoder-decoder model that reads source and target as one text.

    Args:
        model: The language model. Sources must be of equal length, without padding.

    Example:
        >>> import torch
        >>> from s2s.models.transformer import LanguageSettings, build_language_model
        >>> model = build_language_model(LanguageSettings(width=16, heads=2, feedforward=32), size=20).eval()
        >>> source, target = torch.tensor([[5, 6, 2]]), torch.tensor([[1, 5, 6]])
        >>> scores = decoder_only(model).logits(source, source > 0, target)
        >>> text = torch.cat((source, target), dim=1)
        >>> torch.allclose(scores, model.logits(text, separate_documents=False)[:, 3:], atol=1e-5)
        True
    """
    return Seq2Seq(_PrefixEncoder(model.decoder), _PrefixDecoder(model.decoder), model.projection)
