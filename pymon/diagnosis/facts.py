"""The native reader's sums -> `TraceFacts`, and what lowers their credit, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pymon.base.errors import InputError
from pymon.base.units import human_bytes
from pymon.diagnosis.load import Progress, call_sites_beside, printable, read_trace
from pymon.model.diagnosis import CodeSite
from pymon.model.trace import (
    GpuTime,
    LoaderTime,
    NamedTime,
    ScalarReads,
    TraceFacts,
    WindowSource,
)

# Limits of the credibility check, calibrated on the public traces named in docs/facts.md.
MANY_UNLAUNCHED_RATIO: Final = 0.05
MUCH_OVERHEAD_RATIO: Final = 0.05
MOST_GRAPHS_EMPTY_RATIO: Final = 0.5
ENOUGH_STEPS: Final = 2

_RANK_IN_NAME = re.compile(r"(?:rank[-_]?|worker)(\d{1,6})(?!\d)", re.IGNORECASE)
_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$")


def trace_facts(path: Path, progress: Progress | None = None) -> TraceFacts:
    """Read one file; raises InputError where nothing at all can be learnt from it."""
    call_sites, sites_wrong = call_sites_beside(path)
    raw, wrong = read_trace(path, call_sites.steps if call_sites else 0, progress)
    _refuse_nothing(path, raw, wrong)
    cut_short = bool(wrong) or raw["defects"]["truncated"]
    gpu_lost = _gpu_lost(raw, cut_short)
    problems = [*_file_problems(raw, wrong), *_credibility(raw, gpu_lost)]
    if sites_wrong:
        problems.append(sites_wrong)
    return TraceFacts(
        path=str(path),
        bytes_total=raw["bytes_total"],
        events_total=raw["events_total"],
        rank=_rank(raw, path),
        world_size=raw["about"]["world_size"],
        host_name=printable(raw["about"]["host_name"]),
        gpu_name=printable(raw["about"]["gpu_name"]),
        window_source=WindowSource(raw["window_source"]),
        window_s=raw["window_ns"] / 1e9,
        steps_total=raw["steps_total"],
        step_s=tuple(ns / 1e9 for ns in raw["step_ns"]),
        gpu=None if raw["gpu"] is None else _gpu(raw),
        loader=_loader(raw["loader"]),
        reads=ScalarReads(
            raw["reads"]["calls_total"], raw["reads"]["with_copy_total"], raw["reads"]["ns"] / 1e9
        ),
        blocked_s=raw["blocked_ns"] / 1e9,
        waited_s=raw["waited_ns"] / 1e9,
        blocking=_named(raw["blocking"]),
        operators_s=raw["op_ns"] / 1e9,
        top_operators=_named(raw["top_ops"]),
        top_kernels=_named(raw["top_kernels"]),
        sites=tuple(_site(*site) for site in raw["sites"]),
        call_sites=call_sites,
        cut_short=cut_short,
        usable=raw["window_ns"] > 0 and not gpu_lost,
        problems=tuple(problems),
    )


def _refuse_nothing(path: Path, raw: dict[str, Any], wrong: str) -> None:
    if raw["bytes_total"] == 0:
        raise InputError(f"{path}: {wrong or 'the file is empty'}; nothing could be learnt")
    because = f" ({wrong})" if wrong else ""
    if raw["defects"]["no_events_array"]:
        raise InputError(
            f"{path}: not a profiler trace: no traceEvents in "
            f"{human_bytes(raw['bytes_total'])} of text{because}"
        )
    if raw["events_total"] == 0:
        cut = " before its first event" if raw["defects"]["truncated"] else ""
        state = f"cut short{cut}" if cut or wrong else "a trace without events"
        raise InputError(f"{path}: {state}{because}; learnt: {_head(raw)}")
    if raw["host_events_total"] + raw["gpu_events_total"] == 0:
        raise InputError(
            f"{path}: {raw['events_total']:,} events, but none with a usable time{because}; "
            f"learnt: {_head(raw)}"
        )


def _head(raw: dict[str, Any]) -> str:
    about = raw["about"]
    known = {
        "rank": about["rank"],
        "world size": about["world_size"],
        "host": printable(about["host_name"]) or None,
        "GPU": printable(about["gpu_name"]) or None,
    }
    said = ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)
    return said or "nothing from its head"


def _file_problems(raw: dict[str, Any], wrong: str) -> Iterator[str]:
    defects = raw["defects"]
    if wrong:
        yield f"{wrong}: what follows is missing"
    elif defects["truncated"]:
        yield "the trace is cut short: what follows is missing"
    if defects["unreadable_total"]:
        yield (
            f"{defects['unreadable_total']:,} stretches of broken text "
            f"({human_bytes(defects['unreadable_bytes'])}) were skipped"
        )
    if defects["bad_values_total"]:
        yield f"{defects['bad_values_total']:,} events without a possible time were left out"
    if defects["zero_stamps_total"]:
        yield f"{defects['zero_stamps_total']:,} GPU events stamped 0 were left out"
    if defects["over_limit_total"]:
        yield f"{defects['over_limit_total']:,} events past the limit were not kept"
    if defects["refused_names_total"]:
        yield f"{defects['refused_names_total']:,} events lost their name to the memory limit"


def _gpu_lost(raw: dict[str, Any], cut_short: bool) -> bool:
    """A GPU was at work, but the file holds none of it; Kineto writes GPU events last."""
    launched = raw["credibility"]["launches_total"] > 0 or (cut_short and raw["about"]["gpu_name"])
    return raw["gpu_events_total"] == 0 and bool(launched)


def _credibility(raw: dict[str, Any], gpu_lost: bool) -> Iterator[str]:
    credit, gpu_total = raw["credibility"], raw["gpu_events_total"]
    if gpu_lost:
        yield (
            f"no GPU events, though a GPU was used ({credit['launches_total']:,} launches): "
            "they are lost, and what the GPU did is unknown"
        )
    elif gpu_total == 0:
        yield "no GPU events: judged by the host's time; nothing can be said about a GPU"
    if gpu_total and credit["gpu_without_launch_total"] > MANY_UNLAUNCHED_RATIO * gpu_total:
        yield (
            f"{credit['gpu_without_launch_total']:,} of {gpu_total:,} GPU events have no launch "
            "in the trace: causes of idle time are less sure"
        )
    if gpu_total and credit["launches_without_kernel_total"] > (
        MANY_UNLAUNCHED_RATIO * credit["launches_total"]
    ):
        yield (
            f"{credit['launches_without_kernel_total']:,} of {credit['launches_total']:,} "
            "launches have no kernel in the trace: the GPU was busier than it looks"
        )
    if _graphs_unknown(raw):
        yield "CUDA graphs were launched but their kernels are not recorded: idle time is unknown"
    if credit["kernels_before_launch_total"]:
        yield (
            f"{credit['kernels_before_launch_total']:,} GPU events start before their launch: "
            "the two clocks are skewed"
        )
    if raw["window_ns"] and credit["overhead_ns"] > MUCH_OVERHEAD_RATIO * raw["window_ns"]:
        share = credit["overhead_ns"] / raw["window_ns"]
        yield f"the profiler itself took {100 * share:.0f} % of the window"
    if raw["steps_total"] == 0:
        yield "no step is marked: shares are of the whole trace"
    elif raw["steps_total"] < ENOUGH_STEPS:
        yield "only one step: it may not be like the others"


def _graphs_unknown(raw: dict[str, Any]) -> bool:
    credit = raw["credibility"]
    empty: int = credit["graph_launches_empty_total"]
    return bool(empty > MOST_GRAPHS_EMPTY_RATIO * credit["graph_launches_total"])


def _rank(raw: dict[str, Any], path: Path) -> int | None:
    rank: int | None = raw["about"]["rank"]
    if rank is not None:
        return rank
    found = _RANK_IN_NAME.search(path.name)
    return int(found.group(1)) if found else None


def _gpu(raw: dict[str, Any]) -> GpuTime | None:
    if _graphs_unknown(raw):
        return None
    gpu = raw["gpu"]

    def s(key: str) -> float:
        return float(gpu[key]) / 1e9

    def maybe_s(key: str) -> float | None:
        return None if gpu[key] is None else float(gpu[key]) / 1e9

    return GpuTime(
        busy_s=s("busy_ns"),
        compute_s=s("compute_ns"),
        communication_s=s("comm_ns"),
        copy_s=s("copy_ns"),
        exposed_communication_s=s("exposed_comm_ns"),
        exposed_copy_s=s("exposed_copy_ns"),
        idle_s=s("idle_ns"),
        idle_by_data_s=s("idle_by_data_ns"),
        idle_by_gpu_s=s("idle_by_gpu_ns"),
        idle_by_sync_s=s("idle_by_sync_ns"),
        idle_by_allocator_s=s("idle_by_allocator_ns"),
        idle_by_host_s=s("idle_by_host_ns"),
        sync_recoverable_s=s("sync_recoverable_ns"),
        launch_to_start_p50_s=maybe_s("launch_to_start_p50_ns"),
        kernel_p50_s=maybe_s("kernel_p50_ns"),
        kernels_total=gpu["kernels_total"],
        pageable_to_device_bytes=gpu["h2d_pageable_bytes"],
        pageable_to_device_api_s=s("h2d_pageable_api_ns"),
    )


def _loader(raw: dict[str, Any]) -> LoaderTime | None:
    if raw["calls_total"] == 0:
        return None
    kinds = (raw["single_total"] > 0, raw["multi_total"] > 0)
    workers = {(True, False): False, (False, True): True}.get(kinds)
    return LoaderTime(raw["calls_total"], raw["wait_ns"] / 1e9, raw["longest_ns"] / 1e9, workers)


def _named(raw: list[tuple[str, int, int]]) -> tuple[NamedTime, ...]:
    return tuple(NamedTime(printable(name), calls, ns / 1e9) for name, calls, ns in raw)


def _site(frame: str, call: str, is_frame: bool, calls: int, ns: int) -> CodeSite:
    frame, call = printable(frame), printable(call)
    found = _FRAME.match(frame) if is_frame else None
    if found is None:  # an annotation: the place has a name, but no file
        return CodeSite("", 0, frame, call, calls, ns / 1e9, exact_line=False)
    file, line, function = found["file"], int(found["line"]), found["function"]
    return CodeSite(file, line, function, call, calls, ns / 1e9, exact_line=False)
