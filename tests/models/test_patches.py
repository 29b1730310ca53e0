"""Images in every encoder: patches equal a convolution."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

from s2s.errors import UserError
from s2s.models.base import Classifier
from s2s.models.meta_device import on_meta_device
from s2s.models.patches import ImageShape, PatchTable, patches, read_images
from s2s.recipe.installed import encoder_settings, models, module_of

SHAPE = ImageShape(3, 12, (0.4, 0.5, 0.6), (0.2, 0.3, 0.1))
READERS = sorted(kind for kind in models() if hasattr(module_of(kind), "build_encoder"))
# another package's model may be a bag of patches, and ours may not
OURS = [kind for kind in READERS if models()[kind].value.startswith(("s2s.", "baselines."))]


@pytest.fixture
def images() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randint(0, 256, (5, 3, 12, 12), dtype=torch.uint8)


def _classifier(kind: str, first: bool = True, pooling: str = "mean") -> tuple[Classifier, int]:
    torch.manual_seed(0)
    settings = encoder_settings(kind)
    options = {"width": 16} if "width" in settings.model_fields else {}
    encoder, width = module_of(kind).build_encoder(settings(kind=kind, **options), 1)
    length = read_images(encoder, SHAPE, 4, first)
    return Classifier(encoder, width, 7, pooling).eval(), length


def test_patches_are_cut_row_by_row(images):
    cut = patches(images, 4)
    assert cut.shape == (5, 9, 48)
    for i in range(9):
        down, right = divmod(i, 3)
        piece = images[:, :, 4 * down : 4 * down + 4, 4 * right : 4 * right + 4]
        assert torch.equal(cut[:, i], piece.flatten(1))


def test_patches_and_one_linear_map_are_a_strided_convolution(images):
    torch.manual_seed(0)
    table = PatchTable(SHAPE, 4, 10, first=False).double()
    nn.init.normal_(table.projection.bias)
    mean, deviation = (torch.tensor(v, dtype=torch.float64).view(3, 1, 1) for v in (SHAPE.mean, SHAPE.deviation))
    pixels = (images.double() / 255 - mean) / deviation
    convolved = functional.conv2d(pixels, table.projection.weight.view(10, 3, 4, 4), table.projection.bias, stride=4)
    # statistics are kept in single precision
    torch.testing.assert_close(table(images), convolved.flatten(2).transpose(1, 2), atol=1e-5, rtol=0)


def test_class_vector_precedes_the_patches_and_is_shared(images):
    table = PatchTable(SHAPE, 4, 10, first=True)
    vectors = table(images)
    assert vectors.shape == (5, table.length, 10) == (5, 10, 10)
    assert torch.equal(vectors[:, 0], table.first.expand(5, -1))
    table.first = None
    assert torch.equal(vectors[:, 1:], table(images))


def test_patches_vectors_have_the_size_of_those_of_tokens():
    torch.manual_seed(0)
    # as white noise of the training images' mean and deviation would be
    noise = torch.randint(0, 256, (200, 3, 12, 12), dtype=torch.uint8)
    share = noise.double() / 255
    shape = ImageShape(3, 12, tuple(share.mean((0, 2, 3)).tolist()), tuple(share.std((0, 2, 3)).tolist()))
    assert PatchTable(shape, 4, 64, first=False)(noise).std().item() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("kind", READERS)
def test_patches_every_encoder_reads_images(kind, images):
    classifier, length = _classifier(kind)
    valid = torch.ones(5, length, dtype=torch.bool)
    together = classifier(images, valid)
    assert together.shape == (5, 7)
    for i in range(5):
        torch.testing.assert_close(classifier(images[i : i + 1], valid[:1]), together[i : i + 1], atol=1e-5, rtol=1e-4)
    together.sum().backward()
    # what reads the patches, the first vector, the encoder and the head all learn, and no table of tokens is left
    assert [name for name, p in classifier.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("kind", sorted(models()))
def test_patches_are_read_on_the_meta_device_where_parameters_are_counted(kind):
    shape = ImageShape(1, 12, (0.2,), (0.4,))
    sizes = []
    for counted in (False, True):
        module = module_of(kind)
        with on_meta_device() if counted else nullcontext():
            encoder, _ = module.build_encoder(module.Settings(kind=kind, width=16), 1)
            read_images(encoder, shape, 4, first=True)
        sizes.append([parameter.shape for parameter in encoder.parameters()])
    assert sizes[0] == sizes[1]
    assert {parameter.device.type for parameter in encoder.parameters()} == {"meta"}


@pytest.mark.parametrize("kind", OURS)
def test_order_of_patches_tells(kind, images):
    classifier, length = _classifier(kind, first=False)
    valid = torch.ones(5, length, dtype=torch.bool)
    turned = images.unflatten(3, (3, 4)).flip(3).flatten(3)
    assert torch.equal(patches(turned, 4).sum(1), patches(images, 4).sum(1))
    assert not torch.allclose(classifier(turned, valid), classifier(images, valid), atol=1e-4)


def test_transformer_keeps_its_positions_and_does_not_scale_patches(images):
    settings = encoder_settings("transformer")
    made = {}
    for positions in ("none", "learned"):
        torch.manual_seed(0)
        options = {"width": 16, "encoder_positions": positions}
        encoder, _ = module_of("transformer").build_encoder(settings(kind="transformer", **options), 1)
        read_images(encoder, SHAPE, 4, first=True)
        made[positions] = encoder.embedding
    made["none"].tokens.load_state_dict(made["learned"].tokens.state_dict())
    vectors = made["none"](images)
    assert torch.equal(vectors, made["none"].tokens(images))
    torch.testing.assert_close(made["learned"](images), vectors + made["learned"].positions.weight[:10])


def test_patches_mistakes_are_named(images):
    with pytest.raises(UserError, match=r"(?s)patches of 5 pixels do not divide images of 12.*1, 2, 3, 4, 6, 12"):
        PatchTable(SHAPE, 5, 8, first=False)
    settings = encoder_settings("transformer")(
        kind="transformer", width=8, encoder_positions="learned", max_positions=9
    )
    encoder, _ = module_of("transformer").build_encoder(settings, 1)
    with pytest.raises(UserError, match=r"(?s)knows 9 positions, but an image has 10.*max_positions=10"):
        read_images(encoder, SHAPE, 4, first=True)
