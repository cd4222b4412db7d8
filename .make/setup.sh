#!/usr/bin/env bash
# Makes the virtual environment and installs pymon into it, the compiled modules included.
#   setup.sh VENV        what `pymon` needs, torch included (the demo trains for real)
#   setup.sh VENV GROUP  besides that, a dependency group: `dev` for the checks, `frameworks` for their real loops
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
constraints=.make/constraints.txt

say() { printf 'pymon: %s\n' "$*" >&2; }

# The newest interpreter that pymon supports, PYTHON=... to choose another.
choose_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.10; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  say "no Python 3.10 to 3.13 found; on Debian or Ubuntu: apt-get install python3 python3-venv python3-dev"
  exit 1
}

# What a build needs from the system; installed when root on Debian or Ubuntu, else named in one line.
need_system_packages() {
  local python=$1 missing=()
  "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  "$python" -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || missing+=(python3-dev)
  command -v g++ >/dev/null || missing+=(g++)
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing ${missing[*]}"
    apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
  else
    say "these are missing: sudo apt-get install ${missing[*]}"
    exit 1
  fi
}

install_torch() {
  local python=$1 version
  if version=$("$venv/bin/python" -c 'import torch; print(torch.__version__)' 2>/dev/null); then
    say "using the torch that is here already: $version"
    return
  fi
  if [ -n "${PYMON_TORCH_INDEX:-}" ]; then
    say "downloading torch from $PYMON_TORCH_INDEX (a CPU build is about 200 MB)"
    "$venv/bin/pip" install -q -c "$constraints" --index-url "$PYMON_TORCH_INDEX" torch
  else
    say "installing torch: about 200 MB where the index serves a CPU build; PyPI's build for Linux brings CUDA, several GB"
    say "(PYMON_TORCH_INDEX=https://download.pytorch.org/whl/cpu takes the CPU build)"
    "$venv/bin/pip" install -q -c "$constraints" torch
  fi
}

if [ -n "${2:-}" ]; then
  say "installing the group $2"
  "$venv/bin/pip" install -q -c "$constraints" --group "$2"
  exit
fi

if ! [ -x "$venv/bin/python" ]; then
  python=$(choose_python)
  need_system_packages "$python"
  # A torch that the interpreter has already is seen through, not downloaded again.
  site=()
  if "$python" -c 'import torch' 2>/dev/null; then site=(--system-site-packages); fi
  "$python" -m venv "${site[@]}" "$venv"
  "$venv/bin/python" -m pip install -q --upgrade "pip>=25.1"
fi
need_system_packages "$venv/bin/python"
install_torch "$venv/bin/python"
say "building and installing pymon"
PYMON_NATIVE=require "$venv/bin/pip" install -q -c "$constraints" --editable .
