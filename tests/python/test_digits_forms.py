"""The training programs of the original's documents for several replicas, as written there, on the digits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_several_devices import TWO

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# What the documents take for granted.
GIVEN = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from train_digits import accuracy, load_data, MNIST

torch.manual_seed(1)
lr, momentum, num_epochs = 0.05, 0.9, 8
train_data, test_data = load_data()
test_loader = DataLoader(test_data, batch_size=512)
"""

PROCESSES = """
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


def _mp_fn(index):
  device = xm.xla_device()
  para_loader = pl.ParallelLoader(train_loader, [device])


  model = MNIST().train().to(device)
  loss_fn = nn.NLLLoss()
  optimizer = optim.SGD(model.parameters(), lr=lr, momentum=momentum)


  for data, target in para_loader.per_device_loader(device):
    optimizer.zero_grad()
    output = model(data)
    loss = loss_fn(output, target)
    loss.backward()
    xm.optimizer_step(optimizer)
  torch.save([p.cpu() for p in model.parameters()], f"{sys.argv[1]}.{index}")
  xm.master_print("accuracy", accuracy(model, test_loader, device))


if __name__ == '__main__':
  xmp.spawn(_mp_fn, args=())
"""

# The documents' loop is one epoch; this loader goes on for all of them, with the process's part of the data.
EPOCHS = """
import torch_xla.runtime as xr
from torch.utils.data import DistributedSampler


class AllEpochs:
  def __iter__(self):
    sampler = DistributedSampler(train_data, xr.world_size(), xr.global_ordinal())
    for epoch in range(num_epochs):
      sampler.set_epoch(epoch)
      yield from DataLoader(train_data, 32, sampler=sampler)


train_loader = AllEpochs()
"""

THREADS = """
import torch_xla_py.xla_model as xm
import torch_xla_py.data_parallel as dp


devices = xm.get_xla_supported_devices()
model_parallel = dp.DataParallel(MNIST, device_ids=devices)


def train_loop_fn(model, loader, device, context):
  loss_fn = nn.NLLLoss()
  optimizer = optim.SGD(model.parameters(), lr=lr, momentum=momentum)


  model.train()
  for _, (data, target) in loader:
    optimizer.zero_grad()
    output = model(data)
    loss = loss_fn(output, target)
    loss.backward()
    xm.optimizer_step(optimizer)


for epoch in range(1, num_epochs + 1):
  model_parallel(train_loop_fn, train_loader)

for index, model in enumerate(model_parallel.models):
  torch.save([p.cpu() for p in model.parameters()], f"{sys.argv[1]}.{index}")
print("accuracy", accuracy(model_parallel.models[0], test_loader, devices[0]))
"""
LOADER = "train_loader = DataLoader(train_data, batch_size=32, shuffle=True)\n"

FORMS = {
    "processes": GIVEN + "import torch_xla\n" + EPOCHS + PROCESSES,
    "threads": GIVEN + LOADER + THREADS,  # by the first releases' names
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_two_replicas_learn_the_digits(form, tmp_path):
    (tmp_path / "program.py").write_text(FORMS[form])
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "parameters")]
    environment = {**os.environ, **TWO}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("accuracy ")[1]) >= 95
    first, second = (torch.load(tmp_path / f"parameters.{index}") for index in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))
