"""What a recipe of `task: captioning` says: images with captions, how a model reads the ones and writes the others."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.images import PixelSettings
from s2s.recipe.installed import translator_settings


class CaptionPlaces(schema.SourceSettings):
    """Where the images and their captions are."""

    corpus: schema.Word = "built-in"
    """`built-in`, `files`, or the name of a Hugging Face data set such as `jxie/flickr8k`."""
    root: schema.Word | None = None
    """A local folder: with a hub data set, read a data set's own files there instead; with `files`, what relative paths
    start from (the recipe's folder when absent)."""
    images: schema.Word | None = None
    """Folder of the images that a table of `files` names, from the table's own folder, which it is when null."""
    image: schema.Word = "image"
    """Column of the images: of a table their files' names, of a hub data set the images themselves."""
    caption: schema.Columns = "caption"
    """Column of the captions, or a list of columns, each with a caption; of a hub data set, a column may hold lists."""
    quoting: schema.Quoting | None = None
    """Quoting of a tsv: `csv` removes it, `none` keeps all quotes; null is `none`, but refuses a wholly quoted tsv."""
    train: schema.Split = "train"
    """A split name; with the built-in corpus, how many images to draw; with `files`, a table of an image's name and a
    caption a row (csv, tsv, jsonl, parquet; plain, .gz or .xz), Flickr8k's `captions.txt` or `Flickr8k.token.txt`, or
    COCO's captions (json). A pair is such a table and a text file with the name of an image a line: those alone are
    read, as of `[Flickr8k.token.txt, Flickr_8k.trainImages.txt]`."""
    validation: schema.Split = "validation"
    """As `train`; a number with files or a hub data set holds that many images out of the training part."""
    test: schema.Split | None = "test"
    """As `validation`; nothing is tested when null."""


class CaptionDataSettings(PixelSettings, CaptionPlaces):
    """The images and their captions."""


class StemSettings(schema.Section):
    """How an image becomes the sequence that the encoder reads: squares of it, row by row, a vector each."""

    kind: Literal["convolution", "patches"] = "convolution"
    """`patches`: one linear map of each square's pixels (Dosovitskiy et al. 2021); `convolution`: the cells of a small
    network's last feature map, each of which sees something of its neighbours, too (Xu et al. 2015)."""
    size: schema.Pixels = 8
    """Height and width of a square in pixels; divides `data.size`. Of a `convolution` it is a power of two."""


class CaptionBatchSettings(schema.Section):
    """How images and captions become batches."""

    captions: schema.Examples = 64
    """Captions of one batch, each with its image: an image with five captions is seen five times an epoch."""
    max_length: schema.Length = 50
    """Longest caption in pieces; longer ones are counted, reported and not learned from."""


class CaptionTraining(schema.OptimizationSettings):
    """The optimisation."""

    label_smoothing: schema.Probability = 0.0
    """Share of each piece's probability spread evenly over the vocabulary."""


class CaptionValidation(schema.PauseSettings):
    """When training pauses to measure and to save."""

    metric: Literal["loss", "bleu", "chrf", "cider", "exact"] = "cider"
    """What decides which checkpoint is best: BLEU, chrF2++, CIDEr-D, the share of captions that are one of the
    references, or, where lower is better, the loss."""
    bleu_tokenizer: schema.BleuTokenizer = "auto"
    """sacreBLEU's tokenizer of BLEU, as `validation.bleu_tokenizer` of task `translation`."""
    images: schema.Examples | None = None
    """How many validation images are captioned; all when null."""
    beam: schema.Beam = 1
    """Beam of the captions written while training."""


class CaptionDecoding(schema.SearchSettings):
    """How captions are written."""

    max_length: Annotated[int, Field(gt=0, le=4_096)] = 50
    """Longest caption in pieces."""
    batch: schema.Count = 64
    """Images captioned at once."""


class CaptionRecipe(schema.AnyRecipe[schema.Model], Generic[schema.Model]):
    """Captioning: what is learned from, what learns, how, and how it is measured."""

    task: Literal["captioning"]
    """What is learned: to write a caption for each image."""
    data: CaptionDataSettings = CaptionDataSettings()
    """The images and their captions."""
    stem: StemSettings = StemSettings()
    """How an image becomes the sequence that the encoder reads."""
    tokenizer: schema.PieceSettings = schema.PieceSettings()
    """How captions become pieces."""
    batches: CaptionBatchSettings = CaptionBatchSettings()
    """How images and captions become batches."""
    training: CaptionTraining = CaptionTraining()
    """The optimisation."""
    validation: CaptionValidation = CaptionValidation()
    """When training pauses to measure and to save."""
    decoding: CaptionDecoding = CaptionDecoding()
    """How captions are written."""

    @model_validator(mode="after")
    def _images_have_no_table_of_pieces(self) -> Self:
        if getattr(self.model, "tie", None) != "all":
            return self
        if "tie" in self.model.model_fields_set:
            raise ValueError(
                "model.tie is all, but an image has no pieces whose vectors could be the captions'; try target"
            )
        # nobody asked for it: it was the default, which suits a source of pieces
        return self.model_copy(update={"model": self.model.model_copy(update={"tie": "target"})})

    @model_validator(mode="after")
    def _squares_fit(self) -> Self:
        size, square = self.data.size, self.stem.size
        halved = self.stem.kind == "convolution"
        if size % square or (halved and square & (square - 1)):
            fitting = [n for n in range(1, size + 1) if size % n == 0 and not (halved and n & (n - 1))]
            raise ValueError(
                f"stem.size ({square}) must divide data.size ({size})"
                + (" by halving it" if halved else "")
                + f": one of {', '.join(map(str, fitting))}"
            )
        return self


SCHEMA = schema.TaskSchema(
    CaptionRecipe,
    translator_settings,
    command="caption",
    use="caption:    s2s caption {} IMAGE.png",
    changeable=("data", "decoding", "device", "batches"),
    scored_by=("--beam", "--lowercase", "--tokenize"),
)
