import contextlib

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from s2s.comparison.instruments import unfused
from s2s.comparison.operations import Operations


def _depth(operations: Operations, tensor: torch.Tensor) -> int:
    """How long the longest chain is that led to one tensor."""
    return operations._chain(tensor)[0]


def test_operations_depth_is_the_length_of_a_chain():
    x = torch.ones(3)
    with Operations() as operations:
        for _ in range(7):
            x = x + 1
    assert (operations.depth, operations.count) == (7, 7)
    assert _depth(operations, x) == 7


def test_operations_depth_is_that_of_the_longer_branch():
    x = torch.ones(3)
    with Operations() as operations:
        long, short = (x + 1) * 2 - 3, x * 5
        both = long + short
    assert (_depth(operations, long), _depth(operations, short), _depth(operations, both)) == (3, 1, 4)
    assert (operations.depth, operations.count) == (4, 5)


def test_operations_in_place_depend_on_the_previous_content():
    x = torch.ones(3)
    with Operations() as operations:
        y = x + 1
        y.mul_(2).add_(x)
        z = torch.empty(3)
        torch.exp(y, out=z)
    assert (operations.depth, operations.count) == (4, 4)
    assert _depth(operations, y) == 3
    assert _depth(operations, z) == 4


def test_operations_track_writes_without_results():
    x, y = torch.ones(3), torch.ones(4)
    with Operations() as operations:
        torch._foreach_add_([x, y], 1.0)
        z = x + 1
    assert _depth(operations, y) == 1
    assert _depth(operations, z) == 2


def test_operations_on_parts_of_a_tensor_are_independent():
    x = torch.ones(1, 8)
    with Operations() as operations:
        y = x + 1
        for part in y.chunk(4, dim=1):
            part.sigmoid_()
        assert operations.depth == 2
        assert _depth(operations, y) == 2
        whole = y.sum()
    assert _depth(operations, whole) == 3


def test_operations_keep_the_depth_beside_a_partial_write():
    x = torch.ones(1, 8)
    with Operations() as operations:
        y = ((x + 1) + 1) + 1
        y[:, 2:4].zero_()
    assert _depth(operations, y[:, :2]) == 3
    assert _depth(operations, y[:, 2:4]) == 4
    assert _depth(operations, y[:, 1:3]) == 4


def test_operations_do_not_count_views_and_allocations():
    x = torch.ones(4, 6)
    with Operations() as operations:
        y = x.t().view(2, 3, 4)[1].unsqueeze(0).expand(5, 3, 4).detach()
        torch.empty_like(y)
        y.new_empty(3)
        x.unsqueeze_(0)
        assert y.shape == (5, 3, 4)
    assert (operations.depth, operations.count) == (0, 0)


def test_operations_forget_memory_that_is_allocated_again():
    x = torch.ones(1000)
    with Operations() as operations:
        for _ in range(20):
            y = ((x + 1) + 1) + 1
            assert _depth(operations, y) == 3
            del y
            assert _depth(operations, torch.empty(1000)) == 0
    assert operations.depth == 3


def test_operations_follow_the_backward_pass():
    w = torch.ones(3, requires_grad=True)
    with Operations() as operations:
        y = w.exp().exp().exp()
        ahead = operations.depth
        y.sum().backward()
    assert ahead == 3
    # sum and its gradient, and a product for each exp
    assert operations.depth == 3 + 2 + 3


def _slope(run, with_gradients: bool) -> float:
    depths = []
    for n in (4, 8):
        torch.manual_seed(0)
        x = torch.randn(1, n, 4)
        with unfused(), Operations() as operations:
            y = run(x)
            if with_gradients:
                y.sum().backward()
        depths.append(operations.depth)
    return (depths[1] - depths[0]) / 4


def _lstm_by_hand(layer: nn.LSTM, x):
    h = c = torch.zeros(1, 4)
    ahead = nn.functional.linear(x, layer.get_parameter("weight_ih_l0"), layer.get_parameter("bias_ih_l0"))
    for step in ahead.unbind(1):
        gates = nn.functional.linear(h, layer.get_parameter("weight_hh_l0"), layer.get_parameter("bias_hh_l0")) + step
        i, f, g, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h


def test_operations_depth_of_an_lstm_is_that_of_one_by_hand():
    layer = nn.LSTM(4, 4, batch_first=True)
    torch_own = _slope(lambda x: layer(x)[0], with_gradients=False)
    # product, sum, gate, product with the cell, sum, tanh, product with the gate
    assert torch_own == _slope(lambda x: _lstm_by_hand(layer, x), with_gradients=False) == 7


def test_operations_of_a_fused_lstm_do_not_grow_with_length():
    layer = nn.LSTM(4, 4, batch_first=True)
    counts = []
    for n in (4, 64):
        with torch.no_grad(), Operations() as operations:
            layer(torch.randn(1, n, 4))
        counts.append(operations.count)
    assert counts[0] == counts[1]


def test_unfused_computes_the_same_and_restores_the_settings():
    layer, x = nn.LSTM(4, 4, batch_first=True), torch.randn(2, 5, 4)
    before = torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled
    fused = layer(x)[0]
    with unfused():
        assert not torch.backends.mkldnn.enabled
        torch.testing.assert_close(layer(x)[0], fused)
    assert (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled) == before
    with contextlib.suppress(ZeroDivisionError), unfused():
        _ = 1 / 0
    assert (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled) == before


def test_flop_counter_counts_two_for_a_multiply_add():
    with FlopCounterMode(display=False) as flops:
        torch.ones(3, 5) @ torch.ones(5, 7)
    assert flops.get_total_flops() == 2 * 3 * 5 * 7


def test_operations_work_is_all_and_span_the_longest_chain():
    x, w = torch.ones(3, 8), torch.ones(8, 5)
    with Operations() as operations:
        long, short = (x @ w).tanh(), x * 2
        assert (operations.work, operations.span) == (2 * 3 * 5 * 8 + 15 + 24, 4 + 1)
        assert operations.undivided == 240 + 15
        total = long.sum() + short.sum()
    # eight products are summed in three steps, fifteen numbers in four, twenty-four in five, but their chain is shorter
    assert total.dim() == 0
    assert operations.span == 1 + 3 + 1 + 4 + 1
    assert operations.work == 240 + 15 + 24 + 15 + 24 + 1
    assert operations.undivided == 240 + 15 + 15 + 1


def test_operations_span_grows_with_dependent_steps_only():
    w = torch.ones(16, 16)
    for n in (4, 9):
        h, x = torch.ones(1, 16), torch.ones(1, 16)
        with torch.no_grad(), Operations() as chained:
            for _ in range(n):
                h = (h @ w).tanh()
        with torch.no_grad(), Operations() as beside:
            for _ in range(n):
                (x @ w).tanh()
        assert chained.work == beside.work == n * (2 * 16 * 16 + 16)
        assert (chained.span, beside.span) == (n * (1 + 4 + 1), 1 + 4 + 1)


def test_operations_span_of_a_softmax_depends_on_its_row():
    x = torch.ones(4, 64)
    with Operations() as operations:
        x.softmax(dim=1)
    assert (operations.work, operations.span) == (4 * 64, 6)


def test_operations_work_of_a_product_is_that_of_torch():
    layer, x = nn.Linear(6, 7, bias=False), torch.ones(5, 6)
    with FlopCounterMode(display=False) as theirs, Operations() as ours:
        layer(x)
    assert ours.work == theirs.get_total_flops() == 2 * 5 * 6 * 7


def test_unfused_attention_is_explicit():
    parts = [torch.randn(1, 2, 9, 4) for _ in range(3)]
    attend = nn.functional.scaled_dot_product_attention
    with Operations() as fused:
        expected = attend(*parts)
    with unfused(), Operations() as plain:
        torch.testing.assert_close(attend(*parts), expected)
    assert plain.count > fused.count
    # two products over 9 × 9 weights of each head
    assert plain.work > 2 * (2 * 2 * 9 * 9 * 4) > fused.work
