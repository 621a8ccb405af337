"""transformers where the program asks for the CPU: a Trainer run, save_pretrained and from_pretrained, generate.

Its Trainer leaves the choice of the device to accelerate: see accelerate_cpu.py.
"""

import sys

import torch
from common import check_losses
from transformers import GPT2LMHeadModel
from transformers_parts import make_model, train, train_plainly

trainer, losses = train(sys.argv[1] + "/run", use_cpu=True)
check_losses(losses, train_plainly())
trainer.model.save_pretrained(sys.argv[1] + "/model")
loaded = GPT2LMHeadModel.from_pretrained(sys.argv[1] + "/model")
assert torch.equal(loaded.lm_head.weight, trainer.model.lm_head.weight.cpu())
prompt = torch.ones(1, 2, dtype=torch.long)
assert make_model().generate(prompt, max_new_tokens=4, do_sample=False).shape == (1, 6)
