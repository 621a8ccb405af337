"""Prints the folder of the torch that belongs to this interpreter; nothing if there is none.

pip builds in isolation: it hides the environment's packages behind a search path of its own, but they are still there.
"""

import importlib.util
import site
import sysconfig
from pathlib import Path

spec = importlib.util.find_spec("torch")
places = [sysconfig.get_path("platlib"), *site.getsitepackages(), site.getusersitepackages()]
folders = [Path(place, "torch") for place in places]
if spec and spec.submodule_search_locations:
    folders.insert(0, Path(spec.submodule_search_locations[0]))
print(next((folder for folder in folders if (folder / "version.py").exists()), ""))
