"""transformers on the device: a Trainer run, its checkpoints, save_pretrained of tied weights, generate."""

import sys

import torch
from common import check_losses, check_no_fallbacks
from transformers import GPT2LMHeadModel
from transformers_parts import make_dataset, train, train_plainly

trainer, losses = train(sys.argv[1] + "/run", optim="adamw_torch")
model = trainer.model
assert trainer.args.device.type == model.device.type == "xla"

check_losses(losses, train_plainly())
check_no_fallbacks()
assert trainer.evaluate()["eval_loss"] > 0
assert trainer.predict(make_dataset()).predictions.shape == (16, 8, 40)
trainer.train(resume_from_checkpoint=sys.argv[1] + "/run/checkpoint-4")
assert trainer.state.global_step == 8
model.save_pretrained(sys.argv[1] + "/model")
loaded = GPT2LMHeadModel.from_pretrained(sys.argv[1] + "/model")
assert loaded.lm_head.weight is loaded.transformer.wte.weight
for name, value in loaded.state_dict().items():
    assert torch.equal(value, model.state_dict()[name].cpu()), name
prompt = torch.ones(1, 2, dtype=torch.long)
assert torch.equal(
    model.generate(prompt.to("xla"), max_new_tokens=4, do_sample=False).cpu(),
    loaded.generate(prompt, max_new_tokens=4, do_sample=False),
)
