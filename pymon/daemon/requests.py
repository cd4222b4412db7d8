"""What commands ask over the agent socket: capture, status, summary, release."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from pymon import __version__
from pymon.base.errors import PymonError
from pymon.daemon.agent import AgentServer
from pymon.daemon.arming import Arming, switch
from pymon.daemon.boxes import Boxes, box_replies
from pymon.daemon.cases import write_whole
from pymon.daemon.host_rows import absent_rows, job_rows
from pymon.daemon.nvml.release import release
from pymon.daemon.nvml.supervisor import Supervisor
from pymon.daemon.peers import Peer
from pymon.daemon.pipeline import Pipeline
from pymon.link import wire
from pymon.model.capture import CaptureReceipt
from pymon.model.gpu import GpuSection
from pymon.model.gpu_work import CudaEvents, CuptiSums, LayerState
from pymon.model.run import RunCapture
from pymon.model.snapshot import Snapshot
from pymon.model.training import Shed, TrainingProcess, TrainingSection
from pymon.reports import run_html

STEPS_MAX = 1000  # of a request; the capture's own bounds are far below
SETTLE_S = 0.02  # passes of the loop within which an end that the kernel has told is noted
_LATEST = 20  # incidents and captures in a status
_NOT_YOURS = "that process belongs to another user"


@dataclass(slots=True)
class Requests:
    """Answers one request with replies, the last of which says so."""

    pipeline: Pipeline
    server: AgentServer
    socket: Path
    state_dir: Path
    http_url: str
    gpus: Supervisor = field(default_factory=Supervisor)
    boxes: Boxes | None = None
    arming: Arming = field(default_factory=Arming)

    async def answer(self, peer: Peer, request: wire.Request) -> AsyncIterator[wire.Reply]:
        """Never raises for what a peer may send."""
        try:
            if request.command in ("capture", "counters"):
                async for reply in self._capture(peer, request):
                    yield reply
            elif request.command == "status":
                yield fitting(wire.Reply(last=True, body=self._status()))
            elif request.command == "release":
                yield await release(self.gpus, peer, request.for_s)
            elif request.command == "ended":
                yield self._hear(peer, request)
            elif request.command in ("disarm", "arm"):
                yield await switch(self.arming, self.server, peer, request)
            elif request.command == "blackbox":
                async for reply in box_replies(self.boxes, peer, request.pids):
                    yield reply
            elif request.command == "summary":
                await asyncio.sleep(SETTLE_S)
                if self.server.someone_ended:  # what it did last belongs into its summary
                    await self.pipeline.tick(everything=True)
                yield await asyncio.to_thread(self._summary, peer, request.run_id)
            else:
                yield wire.Reply(False, True, f"unknown command {request.command[:64]!r}")
        except (PymonError, OSError) as err:
            yield wire.Reply(False, True, str(err))

    def _hear(self, peer: Peer, request: wire.Request) -> wire.Reply:
        for pid in request.pids[:1]:
            self.server.hear(peer, request.run_id, pid, request.wait_status)
        return wire.Reply(last=True)

    async def _capture(self, peer: Peer, request: wire.Request) -> AsyncIterator[wire.Reply]:
        pids, refusal = self._allowed(peer, tuple(request.pids))
        if refusal:
            yield wire.Reply(False, True, refusal)
            return
        whom = ", ".join(map(str, pids)) or "all processes"
        if request.command == "counters":
            task = self.pipeline.cases.start_counters(pids, request.for_s)
            yield wire.Reply(
                text=f"sampling counters of the GPUs of {whom}; their clocks are locked meanwhile"
            )
        else:
            steps = min(max(request.steps, 1), STEPS_MAX)
            task = self.pipeline.cases.start(pids, steps, "manual")
            yield wire.Reply(text=f"capturing {steps} steps of {whom}")
        capture = await task
        yield wire.Reply(last=True, body=_capture_body(capture))

    def _allowed(self, peer: Peer, pids: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
        """The pids that this peer may capture, or why it may not."""
        owners = {process.pid: process.uid for process in self._living()}
        kineto = self.pipeline.cases.captures.kineto
        if kineto is not None:
            owners = {**{p.pid: p.uid for p in kineto.processes()}, **owners}
        if any(pid in owners and not peer.may_touch(owners[pid]) for pid in pids):
            return (), _NOT_YOURS
        if pids or peer.uid in (0, os.geteuid()):
            return pids, ""
        own = tuple(pid for pid, uid in owners.items() if peer.may_touch(uid))
        return own, "" if own else "no process of yours could be captured"

    def _living(self) -> tuple[TrainingProcess, ...]:
        return living(self.pipeline)

    def _status(self) -> dict[str, Any]:
        newest = self.pipeline.newest
        outcomes = newest.outcomes if newest else ()
        section = newest.get(TrainingSection) if newest else None
        captures = list(self.pipeline.ledger.captures)[-_LATEST:]
        rows = [
            {
                "capture_id": c.capture_id,
                "cause": c.cause,
                "report": c.report_path,
                "under_way": False,
            }
            for c in captures
        ]
        if self.pipeline.cases.under_way:
            name = self.pipeline.cases.captures.under_way or "(being read)"
            rows.append({"capture_id": name, "cause": "", "report": None, "under_way": True})
        return {
            "version": __version__,
            "pid": os.getpid(),
            "socket": str(self.socket),
            "http": self.http_url,
            "processes": [_process_row(p) for p in section.processes] if section else [],
            "gpus": _gpu_rows(newest),
            "jobs": job_rows(newest),
            "collectors": [
                {"name": o.collector, "state": o.state.value, "reason": o.reason} for o in outcomes
            ],
            "absent": absent_rows(newest),
            "disarmed": self.arming.rows(),
            "incidents": [
                {
                    "incident_id": incident.incident_id,
                    "detector": incident.finding.detector,
                    "subject": str(incident.finding.subject),
                    "summary": incident.finding.summary,
                }
                for incident in self.pipeline.incidents.open[-_LATEST:]
            ],
            "captures": rows,
        }

    def _summary(self, peer: Peer, run_id: str) -> wire.Reply:
        """In a worker thread. The report is written anew each time, with the links to its captures' reports."""
        owners = self.pipeline.ledger.owners(run_id)
        if not all(peer.may_touch(uid) for uid in owners):
            return wire.Reply(False, True, "processes of another user are among it")
        summary = self.pipeline.ledger.summary(run_id, None)
        name = "".join(char if char.isalnum() or char in "-_" else "-" for char in run_id)[:64]
        folder = self.state_dir / "runs" / (name or "all")
        try:
            if not owners:  # nothing to tell: whoever invents run ids fills no disk
                return wire.Reply(last=True, body=msgspec.to_builtins(summary))
            folder.mkdir(parents=True, exist_ok=True)
            summary = replace(summary, report_path=str(folder / "report.html"))
            write_whole(folder / "report.html", run_html.render(summary))
        except OSError:
            summary = replace(
                summary, report_path=None
            )  # a full disk costs the page, not the summary
        return fitting(wire.Reply(last=True, body=msgspec.to_builtins(summary)))


def fitting(reply: wire.Reply) -> wire.Reply:
    """The reply, with the oldest rows left out where all would be too large for a message; its text says so."""
    body, left_out = dict(reply.body), []
    for key in ("captures", "incidents", "processes"):
        rows = list(body.get(key, ()))
        count = len(rows)
        while rows and not _fits(body):
            rows = body[key] = rows[(len(rows) + 1) // 2 :]
        if len(rows) < count:
            left_out.append(f"{count - len(rows)} {key}")
    if not left_out:
        return reply
    return replace(
        reply, text=f"too much for one answer, left out: {', '.join(left_out)}", body=body
    )


def _fits(body: dict[str, Any]) -> bool:
    return len(json.dumps(body)) <= wire.MAX_MESSAGE_BYTES - wire.MAX_TEXT


def living(pipeline: Pipeline) -> tuple[TrainingProcess, ...]:
    """The attached processes that run, by the newest snapshot."""
    section = pipeline.newest.get(TrainingSection) if pipeline.newest else None
    return tuple(p for p in section.processes if p.ended is None) if section else ()


def _gpu_rows(newest: Snapshot | None) -> list[dict[str, Any]]:
    section = newest.get(GpuSection) if newest else None
    rows = [
        {
            "gpu": gpu.index,
            "uuid": gpu.uuid,
            "name": gpu.identity.name if gpu.identity else "",
            "state": gpu.state.value,
            "utilization_ratio": gpu.fast.utilization_ratio if gpu.fast else None,
            "reason": gpu.reason,
        }
        for gpu in (section.gpus if section else ())
    ]
    if section and section.driver.reason:
        rows.append(
            {"gpu": "driver", "state": section.driver.state.value, "reason": section.driver.reason}
        )
    return rows


def _process_row(process: TrainingProcess) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "rank": process.rank,
        "job_id": process.job_id,
        "script": process.script,
        "steps": process.steps_total,
        "counting": process.counting.value,
        "step_s": process.new_median_s,
        "cuda_events": _layer_text(process.cuda_events),
        "cupti": _layer_text(process.cupti),
        "overhead_ratio": process.overhead_ratio,
        "shed": None if process.shed is Shed.NOTHING else process.shed.value,
        "ended": process.ended,
    }


def _layer_text(layer: CudaEvents | CuptiSums | None) -> str | None:
    """How a GPU layer of the probe stands, and why it does not run; None without CUDA."""
    if layer is None or layer.state is LayerState.OFF:
        return None
    state: str = layer.state.value
    return state if layer.state is LayerState.RUNNING else f"{state}: {layer.reason}"


def _receipt_row(receipt: CaptureReceipt) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(receipt)
    return row


def _capture_body(capture: RunCapture) -> dict[str, Any]:
    return {
        "capture_id": capture.capture_id,
        "receipts": [_receipt_row(receipt) for receipt in capture.receipts],
        "folder": capture.folder,
        "report": capture.report_path,
        "problem": capture.problem,
        "counters": msgspec.to_builtins(capture.counters),
        "diagnoses": msgspec.to_builtins(capture.diagnoses),
    }
