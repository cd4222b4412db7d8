"""The configuration: one TOML file, checked whole before any of it counts."""

from __future__ import annotations

import difflib
import fnmatch
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from pymon.base.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_STATE_DIR = Path("/var/lib/pymon")
Count = Annotated[int, msgspec.Meta(ge=1)]
Bytes = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Timeout = Annotated[float, msgspec.Meta(gt=0)]


class Daemon(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[daemon]"""

    socket: str = ""  # empty: /run/pymon/agent.sock, else $XDG_RUNTIME_DIR/pymon/agent.sock
    state_dir: str = ""  # empty: /var/lib/pymon, else ~/.local/state/pymon
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[host]"""

    proc: str = "/proc"  # elsewhere in a container that was given the host's
    sys: str = "/sys"
    kubelet: str = "/var/lib/kubelet/pod-resources/kubelet.sock"


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[http]"""

    listen: str = "127.0.0.1:9409"  # HOST:PORT, or `off`


class Prometheus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[prometheus]"""

    series_max: Bytes = 0  # 0: by the number of GPUs (pymon.exporters.prometheus)
    disabled: tuple[str, ...] = ()  # families, by name or pattern


class Collectors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[collectors]"""

    disabled: tuple[str, ...] = ()


class Detectors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[detectors]"""

    disabled: tuple[str, ...] = ()
    quiet_s: Seconds = 10.0
    cooldown_s: Seconds = 300.0


class Nvml(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[nvml]"""

    call_timeout_s: Timeout = 2.0
    init_timeout_s: Timeout = 30.0
    per_link: bool = False
    processes: bool = False
    processes_max: Count = 32


class Capture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[capture]"""

    automatic: bool = True  # incidents start captures
    steps: Count = 3
    max_s: Seconds = 30.0
    max_events: Count = 50_000
    min_free_bytes: Bytes = 256 * 1024 * 1024
    quota_bytes: Bytes = 2 * 1024 * 1024 * 1024
    cooldown_s: Seconds = 300.0


class Kineto(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[kineto]"""

    enabled: bool = True


class Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[journal]"""

    max_bytes: Bytes = 64 * 1024 * 1024


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[probe]"""

    budget_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.01  # design: 1 % of step time


class Blackbox(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[blackbox]"""

    keep_max: Count = 128
    max_bytes: Bytes = 64 * 1024 * 1024


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file; every section and key may be left out."""

    daemon: Daemon = Daemon()
    host: Host = Host()
    http: Http = Http()
    prometheus: Prometheus = Prometheus()
    collectors: Collectors = Collectors()
    nvml: Nvml = Nvml()
    detectors: Detectors = Detectors()
    capture: Capture = Capture()
    kineto: Kineto = Kineto()
    journal: Journal = Journal()
    blackbox: Blackbox = Blackbox()
    probe: Probe = Probe()


def load(path: Path | None) -> Config:
    """The file's configuration, or the defaults. Raises InputError that names the file and what is wrong in it."""
    if path is None:
        return Config()
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise InputError(f"{path}: {err.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise InputError(f"{path}: not TOML: {err}") from None
    _refuse_unknown(path, raw)
    try:
        config = msgspec.convert(raw, Config, strict=True)
    except msgspec.ValidationError as err:
        raise InputError(f"{path}: {_readable(str(err))}") from None
    listen_address(config.http.listen)
    return config


def check_names(where: str, disabled: Iterable[str], known: Iterable[str]) -> None:
    """Raises InputError for a name that switches nothing off."""
    names = dict.fromkeys(known)
    for name in disabled:
        if name not in names:
            raise InputError(f"{where}.disabled: unknown name {name!r}{_nearest(name, names)}")


def matching(where: str, patterns: Iterable[str], known: Iterable[str]) -> frozenset[str]:
    """The names that the patterns (as `pymon_gpu_*`) fit. Raises InputError for one that fits none."""
    names = dict.fromkeys(known)
    found: set[str] = set()
    for pattern in patterns:
        fitting = fnmatch.filter(names, pattern)
        if not fitting:
            close = difflib.get_close_matches(pattern, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "docs/metrics.md lists them"
            raise InputError(f"{where}.disabled: {pattern!r} fits no family; {hint}")
        found.update(fitting)
    return frozenset(found)


def listen_address(text: str) -> tuple[str, int] | None:
    """HOST:PORT, or None for `off`. Raises InputError."""
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{text!r}: expected HOST:PORT, as 127.0.0.1:9409, or `off`")
    return host.strip("[]"), int(port)


def _refuse_unknown(path: Path, raw: dict[str, Any]) -> None:
    sections = get_type_hints(Config)
    for section, values in raw.items():
        if section not in sections:
            raise InputError(f"{path}: unknown section [{section}]{_nearest(section, sections)}")
        if not isinstance(values, dict):
            raise InputError(f"{path}: {section} is a section: write [{section}]")
        known = get_type_hints(sections[section])
        for key in values:
            if key not in known:
                raise InputError(
                    f"{path}: unknown key {key!r} in [{section}]{_nearest(key, known)}"
                )


def _nearest(name: str, known: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(sorted(known))}"


def _readable(message: str) -> str:
    """msgspec ends in ` - at `$.http.listen``; people know the path without the dollar."""
    text, _, where = message.partition(" - at `$.")
    return f"{where.rstrip('`')}: {text}" if where else text
