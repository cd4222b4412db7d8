"""The step reads values out of tensors, or waits for the GPU, more than it needs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pymon.base.units import count, ratio, seconds
from pymon.model.diagnosis import Bottleneck, CodeSite, Confidence, Diagnosis, Evidence
from pymon.model.trace import GpuTime, TraceFacts

SITES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ImplicitSync:
    """Names calls like `.item()`: on a GPU the wait they make, on a CPU the measured cost of the
    reads.

    Needs: blocking calls and idle time by cause with a GPU; the time of scalar reads without one;
        the probe's call sites or the trace's stacks for file and line.
    Holds: with a GPU, the host stands in waiting calls for `min_waited_ratio` of the step and the
        GPU idles `min_idle_ratio` of it for them; or the host waits `much_waited_ratio` and the
        idle time that its lateness explains reaches `much_idle_ratio` (then with low confidence).
        Without GPU events, scalar reads take `min_reads_ratio` of the step. Limits are calibrated
        on the public traces named in docs/facts.md.
    Ruled out: a host that waits while the GPU has work queued; reads of CPU tensors in a GPU run;
        the profiler's own final synchronise; a GPU whose events were lost.
    Errors: none; lacking evidence gives None.
    """

    name: ClassVar[str] = "implicit_sync"
    min_waited_ratio: float = 0.03
    min_idle_ratio: float = 0.02
    much_waited_ratio: float = 0.10
    much_idle_ratio: float = 0.05
    min_reads_ratio: float = 0.03

    def judge(self, facts: TraceFacts) -> Diagnosis | None:
        """Weigh one trace."""
        if not facts.usable:
            return None
        return self._on_gpu(facts, facts.gpu) if facts.gpu else self._on_cpu(facts)

    def _on_gpu(self, facts: TraceFacts, gpu: GpuTime) -> Diagnosis | None:
        waited = facts.share(facts.waited_s)
        idle = facts.share(max(gpu.idle_by_sync_s, gpu.sync_recoverable_s))
        bound = min(waited, facts.share(gpu.idle_by_sync_s + gpu.idle_by_host_s))
        if waited >= self.min_waited_ratio and idle >= self.min_idle_ratio:
            confidence = Confidence.HIGH if idle >= self.much_idle_ratio else Confidence.MEDIUM
        elif waited >= self.much_waited_ratio and bound >= self.much_idle_ratio:
            confidence = Confidence.LOW
        else:
            return None
        evidence = [
            Evidence("Step time that the host stands in calls waiting for the GPU", ratio(waited)),
            Evidence("GPU idle right after such calls, as share of the step", ratio(idle)),
            *(
                Evidence(f"{call.name}: {call.calls_total:,} calls", seconds(call.time_s))
                for call in facts.blocking[:3]
            ),
        ]
        if facts.reads.with_copy_total:
            evidence.append(
                Evidence(
                    "Scalar reads that fetched a value from the GPU",
                    count(facts.reads.with_copy_total),
                )
            )
        return Diagnosis(
            rule=self.name,
            bottleneck=Bottleneck.SYNCHRONISATION,
            title=f"Implicit synchronisation: the host waits for the GPU {ratio(waited)} of the "
            "step",
            confidence=confidence,
            evidence=tuple(evidence),
            advice=(
                "Keep values on the GPU: log the detached tensor every N steps instead of .item() "
                "each step, and decide with torch.where instead of `if tensor:`.",
                "Where the value is needed, copy it to pinned memory with non_blocking=True and "
                "read it one step later (NaN guards and early stopping then act a step late).",
                *_explicit(facts),
                *_where(facts),
            ),
            sites=_sites(facts),
            gain_at_most_ratio=bound,
        )

    def _on_cpu(self, facts: TraceFacts) -> Diagnosis | None:
        calls, time_s, window_s = _reads(facts)
        share = time_s / window_s if window_s > 0 else 0.0
        if calls == 0 or share < self.min_reads_ratio:
            return None
        per_step = calls / facts.steps_total if facts.steps_total else None
        evidence = [
            Evidence("Step time spent reading single values out of tensors", ratio(share)),
            Evidence("Reads in the window", count(calls)),
            Evidence("Measured cost of one read, under the profiler", seconds(time_s / calls)),
        ]
        if per_step is not None:
            evidence.append(Evidence("Reads per step", count(per_step)))
            evidence.append(Evidence("Their cost per step", seconds(time_s / facts.steps_total)))
        times = f"{per_step:,.0f} times a step" if per_step is not None else f"{calls:,} times"
        return Diagnosis(
            rule=self.name,
            bottleneck=Bottleneck.SYNCHRONISATION,
            title=f"Scalar reads: values are read out of tensors {times}, {ratio(share)} of the "
            "step",
            confidence=Confidence.HIGH if _sites(facts) else Confidence.MEDIUM,
            evidence=tuple(evidence),
            advice=(
                "Do the loop inside PyTorch: one tensor expression, or one .tolist() for all "
                "values, instead of .item() per element; log every N steps.",
                "The cost is measured under the profiler, which makes each small call dearer: "
                "without it the gain is smaller. On a GPU each of these reads would also wait.",
                *_where(facts),
            ),
            sites=_sites(facts),
            gain_at_most_ratio=min(share, 1.0),
        )


def _reads(facts: TraceFacts) -> tuple[int, float, float]:
    """Calls, seconds and the window they were measured in: the larger of the trace's and the
    probe's own record.
    """
    best = (facts.reads.calls_total, facts.reads.time_s, facts.window_s)
    if facts.call_sites is None or facts.call_sites.window_s <= 0:
        return best
    sites = facts.call_sites.sites
    own = (sum(s.calls for s in sites), sum(s.total_s for s in sites), facts.call_sites.window_s)
    return max(best, own, key=lambda read: read[1] / read[2] if read[2] > 0 else 0.0)


def _sites(facts: TraceFacts) -> tuple[CodeSite, ...]:
    exact = facts.call_sites.sites if facts.call_sites else ()
    return (exact or facts.sites)[:SITES_SHOWN]


def _explicit(facts: TraceFacts) -> tuple[str, ...]:
    if facts.blocking and "DeviceSynchronize" in facts.blocking[0].name:
        return ("Take torch.cuda.synchronize() out of the step; measure times with CUDA events.",)
    return ()


def _where(facts: TraceFacts) -> tuple[str, ...]:
    sites = _sites(facts)
    if not sites:
        return (
            "Capture with stacks, or with pymon's probe, to see the file and line of each call.",
        )
    first = sites[0]
    if not first.file:
        return (f"Most of it stands inside `{first.function}`.",)
    place = f"{first.file}:{first.line}" + (f" ({first.function})" if first.function else "")
    exact = "" if first.exact_line else "; the trace knows only the first line of the function"
    return (f"Start at {place}{exact}.",)
