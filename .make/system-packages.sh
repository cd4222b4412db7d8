#!/usr/bin/env bash
# System packages that only tests use. Root on Debian or Ubuntu: installed, their services not started.
# Else one line says what is missing; the tests that need it skip with that reason.
set -euo pipefail
missing=()
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing+=(prometheus)
command -v cmake >/dev/null || missing+=(cmake)
[ -e /usr/include/doctest/doctest.h ] || missing+=(doctest-dev)
[ ${#missing[@]} -eq 0 ] && exit
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "pymon: installing ${missing[*]} for the tests" >&2
  # 101 from policy-rc.d: maintainer scripts start no service.
  if ! [ -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } >/dev/null; then
    echo "pymon: could not install ${missing[*]}; the tests that need them skip" >&2
  fi
else
  echo "pymon: missing ${missing[*]}; the tests that need them skip (sudo apt-get install ${missing[*]})" >&2
fi
