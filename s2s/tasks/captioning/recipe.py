"""Recipe of `task: captioning`: images, captions, stem, training and decoding."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.installed import translator_settings
from s2s.recipe.schema import PixelSettings


class CaptionPlaces(schema.SourceSettings, schema.DataSection):
    """Files or data set of the images and captions."""

    corpus: schema.Word = "built-in"
    """Source of the images.

    `built-in`, `files`, or the name of a Hugging Face data set such as `jxie/flickr8k`.
    """
    root: schema.Word | None = None
    """Local folder of the data.

    With a hub data set, its files are read from this folder instead. With `files`, relative paths start here; null uses
    the recipe's folder.
    """
    images: schema.Word | None = None
    """Folder of the images that a table of `files` names.

    A relative path starts from the table's folder, which is also the default.
    """
    image: schema.Word = "image"
    """Column of the images.

    File names in a table; the images themselves in a hub data set.
    """
    caption: schema.Columns = "caption"
    """Column of the captions, or a list of columns with one caption each.

    In a hub data set, a column may hold lists of captions.
    """
    quoting: schema.Quoting | None = None
    """Quoting of a tsv file.

    `csv` removes quotes, `none` keeps them; null is `none`, but refuses a tsv file whose cells are all quoted.
    """
    train: schema.Split = "train"
    """Training images.

    A split name; with the built-in corpus, the number of images to draw; with `files`, a table with an image's name and
    a caption in each row (csv, tsv, jsonl, parquet; plain, .gz or .xz), Flickr8k's `captions.txt` or
    `Flickr8k.token.txt`, or COCO's captions (json). A pair is such a table and a text file with one image name a line,
    which selects images, such as `[Flickr8k.token.txt, Flickr_8k.trainImages.txt]`.
    """
    validation: schema.Split = "validation"
    """Validation images; see `train`.

    With files or a hub data set, a number holds out that many training images.
    """
    test: schema.Split | None = "test"
    """Test images; see `validation`. Null omits the test."""

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        for name in ("image", "caption") if self.corpus == "built-in" else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, but the built-in corpus has no columns: leave it out"
                )
        return self


class CaptionDataSettings(PixelSettings, CaptionPlaces):
    """The images and their captions."""


class StemSettings(schema.Section):
    """Stem: converts an image to a sequence of vectors, one for each square."""

    kind: Literal["convolution", "patches"] = "convolution"
    """Kind of the stem.

    `patches`: a linear map of each square's pixels (Dosovitskiy et al. 2021); `convolution`: the last feature map of a
    small convolutional network, whose cells also see a part of their neighbors (Xu et al. 2015).
    """
    size: schema.Pixels = 8
    """Height and width of a square in pixels.

    It divides `data.size`; for `convolution` it is a power of two.
    """


class CaptionBatchSettings(schema.Section):
    """Batch size and maximum length of captions."""

    captions: schema.Examples = 64
    """Captions of a batch, each with its image.

    An image with five captions occurs five times in an epoch.
    """
    max_length: schema.Length = 50
    """Maximum length of a training caption in tokens.

    Longer captions are left out, and the run reports their number.
    """


class CaptionTraining(schema.OptimizationSettings):
    """Optimizer, learning-rate schedule and regularization."""

    label_smoothing: schema.Probability = 0.0
    """Label smoothing: share of the probability spread evenly over the vocabulary."""


class CaptionValidation(schema.PauseSettings):
    """Schedule and metrics of validations and checkpoints."""

    metric: Literal["loss", "bleu", "chrf", "cider", "exact"] = "cider"
    """Metric that selects the best checkpoint.

    BLEU, chrF2++, CIDEr-D, the share of captions that equal a reference, or, where lower is better, the loss.
    """
    bleu_tokenizer: schema.BleuTokenizer = "auto"
    """sacreBLEU tokenizer; see `validation.bleu_tokenizer` of task `translation`."""
    images: schema.Examples | None = None
    """Number of validation images to caption; null captions all."""
    beam: schema.Beam = 1
    """Beam size of the captions at validations."""


class CaptionDecoding(schema.SearchSettings):
    """Beam search and length limits."""

    max_length: Annotated[int, Field(gt=0, le=4_096)] = 50
    """Maximum length of a generated caption in tokens."""
    batch: schema.Count = 64
    """Number of images captioned at once."""


class CaptionRecipe(schema.SearchRecipe[schema.Model], Generic[schema.Model]):
    """Recipe of a captioning model."""

    task: Literal["captioning"]
    """The task: generate a caption for each image."""
    data: CaptionDataSettings = CaptionDataSettings()
    """The images and their captions."""
    stem: StemSettings = StemSettings()
    """Stem: converts an image to a sequence of vectors."""
    tokenizer: schema.PieceSettings = schema.PieceSettings()
    """Tokenizer of the captions."""
    batches: CaptionBatchSettings = CaptionBatchSettings()
    """Batch size and maximum length of captions."""
    training: CaptionTraining = CaptionTraining()
    """Optimizer, learning-rate schedule and regularization."""
    validation: CaptionValidation = CaptionValidation()
    """Schedule and metrics of validations and checkpoints."""
    decoding: CaptionDecoding = CaptionDecoding()
    """Beam search and length limits."""

    @model_validator(mode="after")
    def _untie_image_encoder(self) -> Self:
        if getattr(self.model, "tie", None) != "all":
            return self
        if "tie" in self.model.model_fields_set:
            raise ValueError(
                "model.tie is all, but an image has no pieces whose vectors could be the captions'; try target"
            )
        # The recipe did not set `tie`: the model's default suits a source of tokens, which an image does not have.
        return self.model_copy(update={"model": self.model.model_copy(update={"tie": "target"})})

    @model_validator(mode="after")
    def _check_squares(self) -> Self:
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
    use="caption:    s2s caption {} {}",
    example="IMAGE.png",
    changeable=("data", "decoding", "device", "batches"),
    scored_by=("--beam", "--lowercase", "--tokenize"),
)
