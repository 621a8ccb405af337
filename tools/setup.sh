#!/usr/bin/env bash
# Sets up what building and testing need: system packages (Debian 12) and the virtual environment .venv.
# Each part leaves a stamp and is skipped while that is up to date. `make setup` runs it without an argument: packages only. With the argument
# `link`, after a build, it installs torch_xla into .venv as a link to this source tree.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp_dir=$venv/stamps
packages=(
  g++ clang-format-19                     # compiler, formatter
  llvm-19-dev libzstd-dev zlib1g-dev      # LLVM, linked statically, and what it needs
  lld-19 ccache                           # linker, compiler cache
  libgtest-dev                            # C++ tests
  chromium-headless-shell                 # the test of the page that torch_xla.debug.explain() writes
)

say() { printf '== setup: %s\n' "$*"; }
die() { printf '== setup: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "system packages are missing and this is neither root nor is there sudo; as root: apt-get install ${missing[*]}"
  fi
}

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# The Python that .venv is (or will be) made of: $PYTHON, else python3.11, else python3.
python=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}

install_system_packages() {
  command -v dpkg-query >/dev/null || die "only Debian is supported here; on another system install by hand: ${packages[*]}"
  if [[ -z $python ]]; then
    packages+=(python3)
  fi
  # Debian's own Python keeps its venv module and headers in packages of their own.
  case $(readlink -f "${python:-/usr/bin/python3}") in
    /usr/bin/*|"") packages+=(python3-venv python3-dev) ;;
  esac
  missing=()
  for package in "${packages[@]}"; do
    installed "$package" || missing+=("$package")
  done
  if ((${#missing[@]})); then
    say "installing system packages: ${missing[*]}"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
  fi
  python=${python:-/usr/bin/python3}
}

install_python_packages() {
  if [[ ! -x $venv/bin/python ]]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "Python 3.10 or newer is needed"
    say "making the virtual environment $venv with $("$python" --version)"
    "$python" -m venv "$venv"
  fi
  say "installing torch and the Python tools of requirements-dev.txt into $venv (a few minutes the first time)"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
}

install_package() {
  grep -q '^def _autoload' torch_xla_autoload/__init__.py || die "torch_xla_autoload has no _autoload; \`import torch\` would fail"
  say "installing torch_xla into $venv as a link to this source tree"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
}

# Runs the function $2 unless the stamp $1 is newer than every file named after it.
once() {
  local stamp=$stamp_dir/$1 action=$2 input fresh=1
  shift 2
  [[ -e $stamp ]] || fresh=0
  for input in "$@"; do
    [[ $stamp -nt $input ]] || fresh=0
  done
  if [[ $fresh == 0 ]]; then
    "$action"
    mkdir -p "$stamp_dir"
    touch "$stamp"
  fi
}

once system install_system_packages tools/setup.sh
once python install_python_packages requirements-dev.txt
if [[ ${1:-} == link ]]; then
  # PyTorch loads the linked package at `import torch`, so it has to be whole by then.
  once package install_package pyproject.toml torch_xla/version.py
fi
