"""Recipe of `task: images`: labelled images, patches, augmentation and training."""

from typing import Annotated, Generic, Literal

from pydantic import Field, model_validator

from s2s.recipe import labelled, schema
from s2s.recipe.installed import encoder_settings
from s2s.recipe.schema import PixelSettings


class ImagePlaces(schema.SourceSettings, labelled.LabelledData):
    """Files or data set of the labelled images."""

    root: schema.Word | None = None
    """Local folder of the data.

    With a hub data set, files in this folder are read instead: IDX files with the usual names
    (`train-images-idx3-ubyte.gz` …), folders of images (`train/cat/1.png`), or the data set's own files. With `files`,
    relative paths start here; null uses the recipe's folder.
    """
    image: schema.Word = "image"
    """Column of the images in a hub data set."""
    label: schema.Word = "label"
    """Column of the classes in a hub data set."""
    train: schema.Split = "train"
    """Training images.

    A split name, a folder with a subfolder of images for each class, or a pair of IDX files (images, labels).
    """
    validation: schema.Split = 1000
    """Validation images; see `train`. A number holds out that many training images."""
    test: schema.Split | None = "test"
    """Test images; see `validation`. Null omits the test."""
    classes: schema.Classes | None = None
    """Names of the classes, in the order of their numbers.

    Null uses the names of the folders in alphabetical order, the names that the hub data set declares, or the numbers
    of the training set.
    """


class ImageDataSettings(PixelSettings, ImagePlaces):
    """The labelled images."""

    size: schema.Pixels = 28
    """Height and width in pixels; images of another size are scaled."""
    channels: Literal[1, 3] = 1
    """Number of channels: 1 for grey, 3 for red, green and blue."""


class AugmentationSettings(schema.Section):
    """Data augmentation of training images, different in each epoch; off by default."""

    shift: Annotated[int, Field(ge=0, le=4_096)] = 0
    """Maximum shift in pixels, in each direction.

    Black pixels fill the gap. A shift of 4 is the usual padded crop on CIFAR.
    """
    crop: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Minimum side of a random square crop, as a share of the image.

    The crop is scaled back to the full size; 1 disables cropping.
    """
    flip: bool = False
    """Flip half of the images horizontally."""


class PatchSettings(schema.Section):
    """Patches, which make an image a sequence (Dosovitskiy et al. 2021)."""

    size: schema.Pixels = 4
    """Height and width of a patch in pixels.

    It divides `data.size`. A linear map converts the pixels of a patch to a vector.
    """


class ImageBatchSettings(schema.Section):
    """Batch size."""

    images: schema.Examples = 128
    """Images of a batch."""


class ImageHeadSettings(labelled.HeadSettings):
    """Classification head: pooling of the encoder's states, and a linear layer."""

    pooling: schema.Pooling = "first"
    """Pooling of the encoder's states to one vector.

    The state of a learned vector before the patches (`first`), the mean, the maximum of each component, the last state,
    a learned weighted mean (`attention`), the encoder's own summary, or a linear layer and tanh over the state of the
    learned vector (`pooler`).
    """


class ImageRecipe(labelled.LabelledRecipe[schema.Model], Generic[schema.Model]):
    """Recipe of an image classifier."""

    task: Literal["images"]
    """The task: assign a class to each image."""
    data: ImageDataSettings = ImageDataSettings()
    """The labelled images."""
    augmentation: AugmentationSettings = AugmentationSettings()
    """Data augmentation of training images."""
    patches: PatchSettings = PatchSettings()
    """Patches, which make an image a sequence."""
    batches: ImageBatchSettings = ImageBatchSettings()
    """Batch size."""
    head: ImageHeadSettings = ImageHeadSettings()
    """Classification head: pooling of the encoder's states, and a linear layer."""
    training: labelled.LabelledTraining = labelled.LabelledTraining()
    """Optimizer, learning-rate schedule and regularization."""
    validation: labelled.ClassificationValidation = labelled.ClassificationValidation()
    """Schedule and metrics of validations and checkpoints."""

    @property
    def tokenizer_names(self) -> tuple[str, ...]:
        """None, because images have no tokens."""
        return ()

    @model_validator(mode="after")
    def _check_augmentation(self) -> "ImageRecipe":
        if self.augmentation.shift >= self.data.size:
            raise ValueError(
                f"augmentation.shift ({self.augmentation.shift}) must be below data.size ({self.data.size}); "
                "4 is usual for 32 pixels"
            )
        return self

    @model_validator(mode="after")
    def _check_patches(self) -> "ImageRecipe":
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
    use="classify:   s2s classify {} {} --probabilities",
    example="*.png",
    changeable=("data", "device", "batches"),
)
