"""`device.shard`: parameters, gradients and what the optimiser keeps, split over processes by torch's `fully_shard`.

The model stays as everybody knows it, but its parameters hold nothing except where they are wanted `whole`. What learns
is a twin that shares them before they are split: its units gather their parameters from all processes when they are
called, forget them again, and send each process its part of their gradient. The optimiser moves the parts.
"""

import copy
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from s2s.training.optimization import Optimization, group_of
from s2s.training.ranks import Lost, Ranks, heard

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Whole = TypeVar("Whole", bound=nn.Module)
Batch = TypeVar("Batch")
Computed = tuple[Tensor, Tensor]


class Sharded(Optimization, Generic[Whole, Batch]):
    """An optimisation, and the model that it is of, from where every process has the same whole of them to its parts.

    Everything that it does, all processes do at once. It takes over the optimiser, and the model's parameters.

    Args:
        whole: of the model, with all that was kept so far.
        model: on the processor, so that it need not fit on the device.
        loss: of the twin and a batch.
        trial: the loss of the model for a small batch, to see what is called when.
        device: of this process.
        ranks: the processes.
    """

    def __init__(
        self,
        whole: Optimization,
        model: Whole,
        loss: Callable[[Whole, Batch], Computed],
        trial: Callable[[], Computed],
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        self.settings, self.names, self._optimizer, self._recurrent = whole.settings, whole.names, whole._optimizer, []
        self.ranks, self._model, self._device = ranks, model, device
        self._gathered = False
        found = ranks.led(units(model, trial))
        # the same tensors, in modules of its own
        twin = copy.deepcopy(model, {id(t): t for t in (*model.parameters(), *model.buffers())})
        self._root = _Root(twin, loss)
        with _lost_told():
            self._split([*(twin.get_submodule(name) for name in found), self._root])
        model.to(device)
        twin.to(device)
        self._twins = dict(twin.named_parameters())
        with torch.no_grad():
            local = {name: _part(p) for name, p in self._twins.items()}
            self._optimizer.kept = {
                name: {part: self._own(t).to(device) for part, t in kept.items()}
                for name, kept in self._optimizer.kept.items()
            }
            self.average = [self._own(a).to(device) for a in whole.average] if whole.average is not None else None
        self.parameters = [local[name] for name in self.names]
        self._groups = {key: [(name, local[name]) for name, _ in group] for key, group in whole._groups.items()}

    def _split(self, modules: list[nn.Module]) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # `units` leaves out what is changed in place
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")
        mesh = init_device_mesh(self._device.type, (self.ranks.size,))
        # a number cannot be split: each process has it, and its gradient is added up by hand
        numbers = {p for p in self._root.parameters() if p.dim() == 0}
        for module in modules:
            own = [p for p in module.parameters() if not _is_split(p)]
            unit = fully_shard(module, mesh=mesh, ignored_params=numbers)
            # each process has divided by the items of all; and gloo has no average
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
            for p in set(own) - numbers:
                _empty(p, self._device)

    def compute(self, batch: Batch) -> Computed:
        """The loss of a batch, as the trainer's; every process calls it as often as the others."""
        with _lost_told():
            return self._root(batch)

    def idle(self, batches: int) -> int:
        """All gather and send as often: who has fewer batches than others computes a row, which counts nothing."""
        return self.ranks.most(batches)[0] - batches

    def backward(self, loss: Tensor) -> None:
        """Adds each process's part of the sum of all their gradients."""
        with _lost_told():
            loss.backward()

    @torch.no_grad()
    def add_over(self, ranks: Ranks, loss: Tensor) -> Tensor:
        """Hands the parts of the gradient, which are sums already, to what moves the parameters; the sum of losses."""
        for name, local in zip(self.names, self.parameters, strict=True):
            p = self._twins[name]
            if p.grad is not None:
                local.grad, p.grad = _part(p.grad), None
        return ranks.add_gradients([p for p in self.parameters if p.dim() == 0], loss)

    def forget_gradients(self) -> None:
        """The next gradient begins at nothing."""
        super().forget_gradients()
        for p in self._twins.values():
            p.grad = None

    def gradient_norms(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The norms of the gradient, of whose squares each process knows a part."""
        groups: dict[str, list[Tensor]] = {}
        for name, p in zip(self.names, self.parameters, strict=True):
            if p.grad is not None:
                mine = p.dim() or self.ranks.leads
                groups.setdefault(group_of(name), []).append(p.grad if mine else torch.zeros_like(p.grad))
        squares = torch.stack([nn.utils.get_total_norm(parts) for parts in groups.values()]).square()
        with heard():
            dist.all_reduce(squares)
        return squares.sum().sqrt(), dict(zip(groups, squares.sqrt().unbind(), strict=True))

    def state(self) -> dict[str, Tensor]:
        """As without shards, on the processor, for the first process; the others help, and get nothing."""
        found: dict[str, Tensor] = {}
        parts = {
            self._optimizer.key(part, name): (name, t)
            for name in self.names
            for part, t in self._optimizer.kept.get(name, {}).items()
        }
        parts |= {f"average.{name}": (name, a) for name, a in zip(self.names, self.average or [], strict=False)}
        for key, (name, t) in parts.items():
            whole = self._whole(name, t) if t.dim() else t.clone()
            if self.ranks.leads:
                found[key] = whole.cpu()
        return found

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Within it, the model has its parameters, in every process."""
        if self._gathered:
            yield
            return
        self.gather()
        try:
            yield
        finally:
            self._gathered = False
            for p in self._model.parameters():
                p.grad = None
                if p.dim():
                    _empty(p, self._device)

    def gather(self) -> None:
        """The model has its parameters from here on, in every process."""
        for name, p in self._model.named_parameters():
            if p.dim():
                p.data = self._whole(name, _part(self._twins[name]))
        self._gathered = True

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it, the model has its parameters, averaged where an average is kept."""
        self._swap()
        try:
            with self.whole():
                yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        # by their numbers: `fully_shard` has the memory of a part, and would not see that another took its place
        for p, a in zip(self.parameters, self.average or (), strict=False):
            now = p.clone()
            p.copy_(a)
            a.copy_(now)

    @torch.no_grad()
    def _whole(self, name: str, part: Tensor) -> Tensor:
        like = self._twins[name]
        if not _is_split(like):
            return part.clone()
        from torch.distributed.tensor import DTensor

        shape, stride = like.shape, like.stride()
        split = DTensor.from_local(part, like.device_mesh, like.placements, run_check=False, shape=shape, stride=stride)
        with heard():
            return split.full_tensor()

    def _own(self, whole: Tensor) -> Tensor:
        """This process's part of a tensor, as `fully_shard` cuts."""
        if not whole.dim():
            return whole.clone()
        parts = whole.chunk(self.ranks.size)
        return (parts[self.ranks.rank] if self.ranks.rank < len(parts) else whole[:0]).clone()


class _Root(nn.Module, Generic[Whole, Batch]):
    """The loss is computed within a module: it reads parameters itself, such as the projection's."""

    def __init__(self, twin: Whole, loss: Callable[[Whole, Batch], Computed]) -> None:
        super().__init__()
        self.twin = twin
        self._loss = loss

    def forward(self, batch: Batch) -> Computed:
        """The loss to learn from, and the one to report."""
        return self._loss(self.twin, batch)


def units(model: nn.Module, trial: Callable[[], Computed]) -> list[str]:
    """The modules that can have their parameters while they are called, and not before or after.

    Of each list of layers, the layers, or where a layer is not such a module, the largest in it that are. It is such a
    module where one loss calls it once, nothing else reads its parameters, and it gives a tensor, from which the way
    back begins, and which nobody changes in place. Those that have only vectors are not worth a message.
    """
    names = {id(module): name for name, module in model.named_modules()}
    inside, calls, given = list[str](), Counter[str](), dict[str, list[tuple[Tensor, int]]]()
    readers: dict[int, list[tuple[str, ...]]] = defaultdict(list)

    class _Reads(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, nn.Parameter):
                    readers[id(leaf)].append(tuple(inside))
            return func(*args, **(kwargs or {}))

    def enter(module: nn.Module, _inputs: object) -> None:
        """What is read from here on is read within it."""
        inside.append(names[id(module)])
        calls[inside[-1]] += 1

    def leave(_module: nn.Module, _inputs: object, output: object) -> None:
        """What it gave, and how often that had been changed."""
        name = inside.pop()
        tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
        given[name] = [(t, t._version) for t in tensors]

    hooks = [
        hook for m in model.modules() for hook in (m.register_forward_pre_hook(enter), m.register_forward_hook(leave))
    ]
    try:
        with _Reads():
            trial()
    finally:
        for hook in hooks:
            hook.remove()

    def fits(name: str, module: nn.Module) -> bool:
        """Whether it can be a unit."""
        own = list(module.parameters())
        alone = all(name in reader for p in own for reader in readers[id(p)])
        way_back = bool(given.get(name)) and all(t._version == version for t, version in given[name])
        return alone and way_back and calls[name] == 1 and any(p.dim() > 1 for p in own)

    def largest(name: str, module: nn.Module) -> list[str]:
        """It, or the largest modules in it that can be units."""
        if fits(name, module):
            return [name]
        return [found for child, inner in module.named_children() for found in largest(f"{name}.{child}", inner)]

    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
    chosen = [
        found for name, m in lists for child, inner in m.named_children() for found in largest(f"{name}.{child}", inner)
    ]
    # a list may be within a layer of another one
    return [name for name in dict.fromkeys(chosen) if not any(name.startswith(f"{other}.") for other in chosen)]


def _is_split(p: Tensor) -> TypeGuard["DTensor"]:
    return hasattr(p, "placements")


def _part(p: Tensor) -> Tensor:
    """What this process has of it."""
    return (p.to_local() if _is_split(p) else p).detach()


def _empty(p: nn.Parameter, device: torch.device) -> None:
    """Leaves of a parameter its shape; the memory is that of one number."""
    p.data = torch.zeros((), dtype=p.dtype, device=device).expand(p.shape)


@contextmanager
def _lost_told() -> Iterator[None]:
    """Tells of a process that is gone; other errors of a model are its own."""
    try:
        yield
    except Lost:
        raise
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        with heard():
            raise
