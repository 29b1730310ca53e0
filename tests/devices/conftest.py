"""A pretend device on the CPU that is as strict as a GPU and counts synchronizations.

Its tensors say that they are on `pretend`. As Apple's GPUs, it knows no float64; as all GPUs, it refuses to compute
with tensors that are elsewhere. What leaves it is counted, since a real GPU would stand still meanwhile.
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from s2s.decoding import beam_search, generate
from s2s.recipe.schema import DeviceSettings
from s2s.training import device as device_module
from s2s.training import tensor_files
from s2s.training.device import DeviceContext

NAME = "pretend"
_WAITS = ("aten._local_scalar_dense.default", "aten.nonzero.default", "aten.equal.default")
_tensor = torch.tensor
counted: Counter[str] = Counter()


class OnPretend(Tensor):
    """A tensor of the device; `there` holds its numbers."""

    there: Tensor

    @staticmethod
    def __new__(cls, there: Tensor) -> "OnPretend":
        if there.dtype == torch.float64:
            raise TypeError("this device knows no float64")
        made = Tensor._make_wrapper_subclass(
            cls,
            there.size(),
            strides=there.stride(),
            storage_offset=there.storage_offset(),
            dtype=there.dtype,
            device=torch.device(NAME, 0),
        )
        made.there = there
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is Tensor.tolist:
            counted["asked"] += 1
            return args[0].there.detach().tolist()
        if func is Tensor.numpy:
            raise TypeError("numbers of this device are not in the processor's memory; use Tensor.cpu() first")
        if func == Tensor.data.__set__:
            args[0].there = args[1].there
        return torch._C._disabled_torch_function_impl(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _compute(func, *args, **(kwargs or {}))


def _compute(func, *args, **kwargs):
    name, tensors = str(func), [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    mine = {id(t.there): t for t in tensors if isinstance(t, OnPretend)}
    there, options = tree_map_only(OnPretend, lambda t: t.there, (args, kwargs))
    home = "device" in options and options["device"] is not None and torch.device(options["device"]).type == "cpu"
    if options.get("device") is not None:
        options["device"] = torch.device("cpu")
    if name == "aten.copy_.default":
        counted["asked" if not isinstance(args[0], OnPretend) else "sent"] += len({type(t) for t in tensors}) - 1
        there[0].copy_(there[1])
        return args[0]
    if any(t.dim() and not isinstance(t, OnPretend) for t in tensors) and len(mine):
        raise RuntimeError(f"{name}: expected all tensors to be on the same device")
    counted["asked"] += home or name in _WAITS
    counted[name] += 1
    found = func(*there, **options)
    if home:
        return found
    return tree_map_only(Tensor, lambda t: mine[id(t)] if id(t) in mine else OnPretend(t), found)


class _Backend:
    """What torch asks of a device's module."""

    manual_seed_all = staticmethod(lambda seed: None)
    _is_in_bad_fork = is_initialized = is_available = staticmethod(lambda: False)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16])


_setup = getattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend", None)
if os.environ.get("S2S_TEST_DEVICE", "cpu") != "cpu":
    # beside a real one, torch would ask it for memory that a GPU can read
    _setup = None
if _setup is not None:
    # here, when tests are collected: autograd counts the devices once, at the first gradient of the process
    _setup(NAME, backend_module=_Backend())
    # tensors that are made on the device, not brought there
    _library = torch.library.Library("_", "IMPL")
    _library.fallback(_compute, "PrivateUse1")


@pytest.fixture
def pretend(monkeypatch) -> Iterator[DeviceContext]:
    """The device, with nothing counted yet."""
    if _setup is None:
        pytest.skip("this torch cannot be given a device in Python")
    counted.clear()
    # what torch and safetensors do in C++ with a device's memory, which this one has not
    monkeypatch.setattr(torch, "tensor", _made_there)
    save = tensor_files.save_file
    monkeypatch.setattr(tensor_files, "save_file", lambda all, path: save({n: t.cpu() for n, t in all.items()}, path))
    # torch makes no views in inference mode of tensors that Python made
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)
    monkeypatch.setattr(generate, "search", torch.no_grad()(beam_search.search.__wrapped__))
    # left alone, torch would make a new parameter of each that goes there, and part those that are tied
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield DeviceContext(torch.device(NAME), torch.float32)
    torch.__future__.set_swap_module_params_on_conversion(False)


def _made_there(data, dtype=None, device=None):
    made = _tensor(data, dtype=dtype)
    return made if device is None else made.to(device)


@pytest.fixture
def counts(pretend) -> Counter[str]:
    """How often the device was asked for numbers, was sent some, and ran each operation."""
    return counted


@pytest.fixture
def chosen(request, device, monkeypatch) -> DeviceContext:
    """The device, as every command's choice; a real one where S2S_TEST_DEVICE names it."""
    if device.type != "cpu":
        return device_module.select_device(DeviceSettings())
    pretend = request.getfixturevalue("pretend")
    monkeypatch.setattr(device_module, "DeviceContext", lambda *chosen, **named: pretend)
    return pretend
