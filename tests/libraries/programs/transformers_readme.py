"""README.md: the lines that generate text with an LLM."""

import os
import re
import sys
from pathlib import Path

README = Path(__file__).parents[3] / "README.md"

if __name__ == "__main__":
    os.chdir(sys.argv[1])
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if "from transformers import" in block)
    names = {}
    exec(block, names)
    assert names["tokens"].shape == (1, 23) and names["tokens"].device.type == "xla"
    print(names["tokens"].tolist())
