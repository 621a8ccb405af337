"""GRU: torch.nn.GRU as a loop of the graph, so that long sequences compile as fast as short ones."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from .scan import scan


def _step(carry: tuple, gates: torch.Tensor) -> tuple[tuple, torch.Tensor]:
    """One step in time.

    Args:
        carry: the state [batch, hidden size], and its weight and bias (or None).
        gates: the input's share of the gates reset, update and new, [batch, 3 * hidden size].
    """
    h, weight, bias = carry
    r_x, z_x, n_x = gates.chunk(3, dim=1)
    r_h, z_h, n_h = F.linear(h, weight, bias).chunk(3, dim=1)
    update = torch.sigmoid(z_x + z_h)
    new = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
    h = new + update * (h - new)
    return (h, weight, bias), h


class GRU(nn.GRU):
    """torch.nn.GRU: its arguments, weights, values, gradients and errors, by a loop over time (scan()) for each layer.

    torch.nn.GRU handles the rest: `bidirectional`, a PackedSequence, tensors of other devices. The original refuses a
    PackedSequence.
    """

    def forward(self, input, hx: torch.Tensor | None = None):
        """The last layer's states, and each layer's last state.

        Args:
            input: [length, batch, input_size] ([batch, length, input_size] by `batch_first`) or [length, input_size].
            hx: the first states, [num_layers, batch, hidden_size] or [num_layers, hidden_size]; by default zeros.

        Returns `(output, h_n)` with sizes as `input` and `hx`, of hidden_size in the last dim. Raises ValueError and
        RuntimeError for sizes that do not fit, as torch.nn.GRU.
        """
        if self.bidirectional or isinstance(input, PackedSequence) or input.device.type != "xla":
            return super().forward(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(f"GRU: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if hx is not None and hx.dim() != input.dim():
            raise RuntimeError(f"the input has {input.dim()} dims, so hx should have as many, but has {hx.dim()}")
        if input.dim() == 3:
            return self._run(input, hx)
        batch_dim = 0 if self.batch_first else 1
        output, last = self._run(input.unsqueeze(batch_dim), None if hx is None else hx.unsqueeze(1))
        return output.squeeze(batch_dim), last.squeeze(1)

    def _run(self, input: torch.Tensor, hx: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """forward() of a batch."""
        if hx is None:
            batch = input.size(0 if self.batch_first else 1)
            hx = input.new_zeros(self.num_layers, batch, self.hidden_size)
        self.check_forward_args(input, hx, None)
        x = input.transpose(0, 1) if self.batch_first else input
        if len(x) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        last = []
        for layer, (weights, h) in enumerate(zip(self.all_weights, hx.unbind())):
            if layer > 0:
                x = F.dropout(x, self.dropout, self.training)
            of_input, of_state, *biases = weights
            input_bias, state_bias = biases or (None, None)
            gates = F.linear(x, of_input, input_bias)  # of all steps at once
            (h, _, _), x = scan(_step, (h, of_state, state_bias), gates, is_fn_pure=True)
            last.append(h)
        return x.transpose(0, 1) if self.batch_first else x, torch.stack(last)
