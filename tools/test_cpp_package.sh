#!/usr/bin/env bash
# Builds a wheel, installs it into a fresh environment, and builds the programs of examples/cpp and tests/cpp_package against it, all outside
# of the repository; then runs them. The wheel is `make wheel`'s, for the torch and the Python of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '== cpp package: %s\n' "$*"; }

say "building the wheel"
python tools/make_wheel.py --pythons python --dist "$work" >"$work/wheel.log" 2>&1 || { cat "$work/wheel.log"; exit 1; }
# An environment that sees this one's packages, but for the link to the source tree, which is not followed: .pth files count in the first.
python -m venv --without-pip "$work/venv"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/others.pth"
python -m pip install --quiet --disable-pip-version-check --no-deps --target "$site" "$work"/torch_xla-*.whl
ln -s "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch" "$site/torch" # beside it, as in a user's environment
export PATH=$work/venv/bin:$PATH

cp -r examples/cpp "$work/examples"
cp -r tests/cpp_package "$work/tests"
cd "$work"
prefix=$(python -c 'import torch_xla; print(torch_xla.cmake_prefix_path)')
[[ $prefix == "$site"/torch_xla/share/cmake* ]] || { say "not the installed package: $prefix" >&2; exit 1; }
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
fi
for project in examples tests; do
  say "building and running $project"
  cmake -S "$project" -B "$project/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; exit 1; }
  cmake --build "$project/build"
  ctest --test-dir "$project/build" --output-on-failure --timeout 240
done
say "modules saved from the device in one language, loaded in the other"
python tests/modules.py examples/build/data
examples/build/load_module examples/build/data/of_python
