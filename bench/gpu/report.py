"""gpu-results.json for people: a table in the terminal, docs/gpu-results.md, and what follows from several parts."""

from __future__ import annotations

from typing import Any

TYPICAL, WORST = 0.004, 0.01  # aims of the design: of a step's time, typically and at worst
# key, what it is, unit, factor from the key's own unit, aim (None: for comparison), key of the noise
Row = tuple[str, str, str, float, "float | None", "str | None"]


def _launch_rows() -> list[Row]:
    rows: list[Row] = []
    kinds = (
        ("eager_tiny", "host", "a launch, eager and launch-bound"),
        ("eager_large", "total", "a kernel, eager and GPU-bound"),
        ("graph", "total", "a kernel in a CUDA graph"),
    )
    for name, kind, text in kinds:
        key = f"launch_{name}_{kind}"
        rows.append((f"{key}_ns", text, "ns", 1, None, None))
        for layers in ("cupti", "cupti_sync"):
            added = f"{key}_{layers}"
            noise = f"{added}_noise_ns"
            rows.append((f"{added}_added_ns", f"  {layers} adds", "ns", 1, None, noise))
    return rows


def _step_rows(name: str, text: str) -> list[Row]:
    rows: list[Row] = [
        (f"{name}_step_us", f"a step of a {text}", "ms", 1e-3, None, None),
        (f"{name}_kernels_per_step", "  its kernels", "", 1, None, None),
    ]
    for layers in ("events", "all"):
        for figure, aim in (("mean", TYPICAL), ("p99", WORST), ("p999", None)):
            key, noise = f"{name}_{layers}_{figure}_ratio", f"{name}_noise_{figure}_ratio"
            what = "hooks and events" if layers == "events" else "all layers"
            rows.append((key, f"  {what} add, {figure}", "%", 100, aim, noise))
    noise = f"{name}_without_noise_ratio"
    rows.append((f"{name}_residue_ratio", "  left while yielded", "%", 100, None, noise))
    return rows


ROWS: tuple[Row, ...] = (
    *_launch_rows(),
    *_step_rows("gpt", "small GPT"),
    *_step_rows("resnet", "ResNet-18"),
    ("event_record_ns", "cuEventRecord", "ns", 1, None, None),
    ("event_record_untimed_ns", "  without timing", "ns", 1, None, None),
    ("event_query_done_ns", "cuEventQuery, done", "ns", 1, None, None),
    ("event_query_pending_ns", "  pending", "ns", 1, None, None),
    ("event_elapsed_ns", "cuEventElapsedTime", "ns", 1, None, None),
    ("torch_event_record_ns", "torch.cuda.Event.record", "ns", 1, None, None),
    ("mark_driver_ns", "the driver's part of a mark", "ns", 1, None, None),
    ("agree_total_ratio", "GPU time, ours against torch.profiler", "%", 100, 0.01, "agree_noise_theirs_ratio"),
    ("agree_worst_ratio", "  the class that differs most", "%", 100, 0.01, None),
    ("handover_ours_lost", "kernels lost by ours in ten hand-overs", "", 1, 0, None),
    ("handover_theirs_lost", "  by torch.profiler", "", 1, None, "handover_theirs_lost_without_pymon"),
    ("handover_profiler_opens_ms", "opening a profile, ours yielding", "ms", 1, None, None),
    ("replays_seconds", "graphs replayed for", "s", 1, None, None),
    ("replays_records", "  records", "M", 1e-6, None, None),
    ("replays_gpu_growth_mib", "  growth of GPU memory", "MiB", 1, 64, None),
    ("replays_zero_times", "  records without times", "", 1, 0, None),
    ("replays_lost_ratio", "  records lost", "%", 100, 0, None),
    ("replays_layer_core_ratio", "  the layer's share of a core", "%", 100, 0.005, "replays_layer_core_ratio_early"),
    ("flood_per_s", "graphs without pause, kernels a second", "k", 1e-3, None, None),
    ("flood_records", "  records", "M", 1e-6, None, None),
    ("flood_gpu_growth_mib", "  growth of GPU memory", "MiB", 1, 64, None),
    ("flood_zero_times", "  records without times", "", 1, None, None),
    ("flood_layer_core_ratio", "  the layer's share of a core", "%", 100, None, None),
)  # fmt: skip
MACHINE = (
    "gpu",
    "driver",
    "torch",
    "cuda",
    "cupti",
    "python",
    "kernel",
    "cpus",
    "uid",
    "date",
    "pymon_commit",
)
SAID = (
    "gpt_cupti_state",
    "resnet_cupti_state",
    "replays_state",
    "flood_state",
    "train_classes",
    "second_client_answer_text",
    "second_client_our_records_since",
    "second_client_their_buffers",
    "second_client_state",
    "second_client_reason",
)  # in words, below the table
HOW = (
    "`make gpu-check PY=python3` on a machine with a GPU\n"
    "writes `build/gpu-results.json` (no network needed, under ten minutes), and\n"
    "`python -m bench.gpu.check --write-docs` makes this page of it.\n"
)


def derived(figures: dict[str, Any]) -> dict[str, Any]:
    """What stays of pymon's cost while its layer is yielded: against processes that never had it."""
    found = {}
    for name in ("gpt", "resnet"):
        keys = (f"{name}_step_us", f"{name}_without_step_us", f"{name}_without_step_us_again")
        if any(key not in figures for key in keys):
            continue
        yielded, once, again = (figures[key] for key in keys)
        found[f"{name}_residue_ratio"] = yielded / ((once + again) / 2) - 1.0
        found[f"{name}_without_noise_ratio"] = abs(once - again) / ((once + again) / 2)
    return found


def is_whole(figures: dict[str, Any]) -> bool:
    """Every part and every test did what it should; parts that a dry run leaves out are none."""
    outcomes = [
        value
        for key, value in figures.items()
        if key.startswith(("part_", "test_")) and isinstance(value, str)
    ]
    return bool(outcomes) and all(value in ("ok", "passed") for value in outcomes)


def rows(figures: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """(what, value, noise, aim) of the figures that are there."""
    found = []
    for key, text, unit, factor, aim, noise in ROWS:
        if not isinstance(value := figures.get(key), (int, float)):
            continue
        beside = figures.get(noise) if noise is not None else None
        found.append(
            (
                text,
                f"{number(value * factor)} {unit}".strip(),
                "" if beside is None else f"{number(beside * factor)} {unit}".strip(),
                ""
                if aim is None
                else f"≤ {number(aim * factor)} {unit}".strip()
                + f": {verdict(key, value, aim, beside)}",
            )
        )
    return found


def verdict(key: str, value: float, aim: float, noise: float | None) -> str:
    """An agreement may be missed to both sides, a cost to one; where the noise is above both nothing is known."""
    size = abs(value) if key.startswith("agree_") else value
    if noise is not None and abs(noise) > max(aim, size):
        return "not told from noise"
    return "met" if size <= aim else "MISSED"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def not_done(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Parts and tests that did not end well, with their reason."""
    return [
        (key, value)
        for key, value in figures.items()
        if key.startswith(("part_", "test_"))
        and isinstance(value, str)
        and value not in ("ok", "passed")
    ]


def table(figures: dict[str, Any]) -> str:
    lines = []
    if figures.get("dry_run"):
        lines.append(
            "A DRY RUN on doubles: it shows that the parts work together; no figure means anything."
        )
    lines.append(
        ", ".join(f"{key} {figures[key]}" for key in MACHINE if figures.get(key) is not None)
    )
    lines.append(f"{'':42}{'':>14}{'noise':>12}   aim")
    lines += [
        f"{what:42}{value:>14}{noise:>12}   {aim}" for what, value, noise, aim in rows(figures)
    ]
    lines += [f"{key}: {figures[key]}" for key in SAID if key in figures]
    lines += [f"{key}: {why}" for key, why in not_done(figures)]
    return "\n".join(lines)


def document(figures: dict[str, Any]) -> str:
    """docs/gpu-results.md."""
    title = "# Measured on a GPU\n\n"
    if not figures.get("gpu") or figures.get("dry_run"):
        return f"{title}No GPU machine could be had yet, so nothing here has been measured on one. {HOW}"
    machine = "\n".join(
        f"| {key} | {figures[key]} |" for key in MACHINE if figures.get(key) is not None
    )
    measured = "\n".join(f"| {' | '.join(row)} |" for row in rows(figures))
    passed = sum(
        1 for key, value in figures.items() if key.startswith("test_") and value == "passed"
    )
    lacking = "\n".join(f"- `{key}`: {why}" for key, why in not_done(figures)) or "- nothing"
    said = "\n".join(f"- `{key}`: {figures[key]}" for key in SAID if key in figures)
    return (
        f"{title}{HOW}\n| | |\n|---|---|\n{machine}\n\n"
        "Noise is the same figure of two identical baselines (for the agreement: of one tool's own turns): what is\n"
        "below it says nothing more than that. Added times are medians of blocks that alternate at random;\n"
        "percentiles are differences of percentiles, in per cent of the mean step.\n\n"
        f"| | measured | noise | aim |\n|---|---|---|---|\n{measured}\n\n"
        f"In words:\n\n{said}\n\n{passed} tests passed. What failed or was skipped:\n\n{lacking}\n"
    )
