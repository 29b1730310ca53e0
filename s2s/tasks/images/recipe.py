"""What a recipe says of images: where they are, how they become patches, and how they are varied."""

from typing import Annotated, Generic, Literal

from pydantic import Field, model_validator

from s2s.recipe import labelled, schema
from s2s.recipe.images import PixelSettings
from s2s.recipe.installed import encoder_settings


class ImagePlaces(schema.SourceSettings):
    """Where the labelled images are."""

    root: schema.Word | None = None
    """A local folder: with a hub data set, read what lies there instead: IDX files of the usual names
    (`train-images-idx3-ubyte.gz` …), folders of images (`train/cat/1.png`), or a data set's own files; with `files`,
    what relative paths start from (the recipe's folder when absent)."""
    image: schema.Word = "image"
    """Column of a hub data set that holds the images."""
    label: schema.Word = "label"
    """Column of a hub data set that holds the classes."""
    train: schema.Split = "train"
    """A split name, a folder with one folder of images for each class, or a pair of IDX files (images, labels)."""
    validation: schema.Split = 1000
    """As `train`; a number holds that many images out of the training part."""
    test: schema.Split | None = "test"
    """As `validation`; nothing is tested when null."""
    classes: schema.Classes | None = None
    """Names of the classes, in the order of their numbers; when null, the folders by the alphabet, the hub's own, or
    the numbers of the training part."""


class ImageDataSettings(PixelSettings, ImagePlaces):
    """The labelled images."""

    size: schema.Pixels = 28
    """Height and width in pixels; images of another size are scaled."""
    channels: Literal[1, 3] = 1
    """1: grey; 3: red, green, blue."""


class AugmentationSettings(schema.Section):
    """How training images are varied, differently in each epoch; by default they are not."""

    shift: Annotated[int, Field(ge=0, le=4_096)] = 0
    """Most pixels by which an image is moved, to each side; black comes in. On CIFAR, 4 is the usual crop of a padded
    image."""
    crop: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Smallest side of the square that is cut out and scaled back, as a share of the whole; 1: nothing is cut."""
    flip: bool = False
    """Whether half of the images are turned left to right."""


class PatchSettings(schema.Section):
    """How an image becomes a sequence (Dosovitskiy et al. 2021)."""

    size: schema.Pixels = 4
    """Height and width of a patch in pixels; divides `data.size`. One linear map makes a vector of its pixels."""


class ImageBatchSettings(schema.Section):
    """How images become batches."""

    images: schema.Examples = 128
    """Images of one batch."""


class ImageHeadSettings(labelled.HeadSettings):
    """What turns the encoder's states into scores of the classes."""

    pooling: schema.Pooling = "first"
    """How one vector is made of the states: that of a learned vector which stands before the patches (`first`), their
    mean, the largest of each number, the last one, a learned weighted mean (`attention`), the encoder's own
    summary, or a linear layer and tanh over that of the learned vector (`pooler`)."""


class ImageRecipe(schema.AnyRecipe[schema.Model], Generic[schema.Model]):
    """Classification of images: what is learned from, what learns, how, and how it is measured."""

    task: Literal["images"]
    """What is learned: to name the class of each image."""
    data: ImageDataSettings = ImageDataSettings()
    """The labelled images."""
    augmentation: AugmentationSettings = AugmentationSettings()
    """How training images are varied."""
    patches: PatchSettings = PatchSettings()
    """How an image becomes a sequence."""
    batches: ImageBatchSettings = ImageBatchSettings()
    """How images become batches."""
    head: ImageHeadSettings = ImageHeadSettings()
    """What turns the encoder's states into scores of the classes."""
    training: labelled.LabelledTraining = labelled.LabelledTraining()
    """The optimisation."""
    validation: labelled.ClassificationValidation = labelled.ClassificationValidation()
    """When training pauses to measure and to save."""

    @model_validator(mode="after")
    def _something_stays_in_the_picture(self) -> "ImageRecipe":
        if self.augmentation.shift >= self.data.size:
            raise ValueError(
                f"augmentation.shift ({self.augmentation.shift}) must be below data.size ({self.data.size}); "
                "4 is usual for 32 pixels"
            )
        return self

    @model_validator(mode="after")
    def _patches_fit(self) -> "ImageRecipe":
        if self.data.size % self.patches.size:
            fitting = ", ".join(str(n) for n in range(1, self.data.size + 1) if self.data.size % n == 0)
            raise ValueError(
                f"patches.size ({self.patches.size}) must divide data.size ({self.data.size}): one of {fitting}"
            )
        return self


SCHEMA = schema.TaskSchema(
    ImageRecipe,
    encoder_settings,
    command="classify",
    use="classify:   ls *.png | s2s classify {} --probabilities",
    changeable=("data", "device", "batches"),
)
