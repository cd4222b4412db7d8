"""Pages as the daemon reads them: whole states of an honest trainer, a refusal for anything else."""

import fcntl
import os

import pytest

from pymon import native
from pymon.link import layout
from pymon.link.event_section import KINDS
from pymon.link.gpu_sections import WORK_CLASSES
from pymon.link.memory_section import ALLOCATOR_VALUES, HOST_VALUES
from pymon.link.page import PageError, PageReader
from pymon.link.page_twin import PageTwin
from pymon.link.recorder_section import recorder_sample
from tests.link import page_peer
from tests.native.build import built

TOOLS, WHY_NOT = native.tools()
BACKENDS = [
    pytest.param("native", marks=pytest.mark.skipif(TOOLS is None, reason=WHY_NOT)),
    "python",
]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def trainer():
    peer = page_peer.PagePeer(built("address,undefined", "page_peer") / "page_peer")
    yield peer
    peer.close()


@pytest.fixture
def opened(backend):
    """Opens what is given with the backend; closes all in the end."""
    readers = []

    def open_page(fd):
        reader = PageReader.open(fd, backend)
        readers.append(reader)
        return reader

    yield open_page
    for reader in readers:
        reader.close()


@pytest.fixture
def made():
    """A memfd made by hand."""
    fds = []

    def make(**how):
        fds.append(page_peer.memfd(**how))
        return fds[-1]

    yield make
    for fd in fds:
        os.close(fd)


class TestHonestTrainer:
    pytestmark = pytest.mark.timeout(600)  # the first one builds

    def test_header_says_whose_page_it_is(self, trainer, opened):
        header = opened(trainer.fd).header
        assert (header.major, header.minor) == (layout.MAJOR, layout.MINOR)
        assert header.pid == trainer.pid
        assert header.attach_id == "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
        with open(f"/proc/{trainer.pid}/stat", encoding="ascii") as stat:
            assert header.start_ticks == int(stat.read().rsplit(")", 1)[1].split()[19])

    def test_nothing_published_reads_as_zeros(self, trainer, opened):
        page = opened(trainer.fd)
        assert page.train().steps_total == 0
        assert page.train().loader_workers is None
        assert page.steps_after(0) == ((), 0)

    def test_each_field_comes_from_its_word(self, trainer, opened):
        trainer.say("publish 1000")
        train = opened(trainer.fd).train()
        assert train.counting == 0  # 1000 is no way of counting that we know
        assert train.steps_total == 1001
        assert train.own_ns_total == 1008
        assert train.capturing
        assert train.loader_workers == 1009
        assert train.dropped_total == 1015
        assert (train.samples_total, train.tokens_total) == (1016, 1017)
        assert (train.stall_ns_total, train.usual_step_ns) == (1018, 1019)
        assert (train.evaluation_ns_total, train.checkpoint_ns_total) == (1029, 1030)
        assert train.phase_ns_total == (1024, 1025, 1026, 1027, 1028)
        assert train.step_histogram == tuple(range(1040, 1072))
        assert train.phase_histograms[4] == tuple(range(1200, 1232))
        assert [ns for _, ns in train.user_phase_ns_total] == list(range(1032, 1040))
        assert all(name.isprintable() for name, _ in train.user_phase_ns_total)

    def test_each_field_of_a_step_comes_from_its_word(self, trainer, opened):
        trainer.say("push 3 3")
        (step,), lost = opened(trainer.fd).steps_after(2)
        assert lost == 0
        assert (step.step, step.end_mono_ns, step.duration_ns, step.own_ns) == (3, 301, 302, 305)
        assert (step.backwards, step.optimizer_calls, step.batches) == (303, 0, 0)
        assert (step.profiled, step.estimated) == (False, False)
        assert (step.samples, step.tokens) == (306, 307)
        assert (step.evaluation_ns, step.checkpoint_ns) == (313, 314)
        assert step.phase_ns == (308, 309, 310, 311, 312)

    def test_a_reader_that_comes_late_learns_how_many_steps_it_missed(self, trainer, opened):
        trainer.say("push 1 5000")
        steps, lost = opened(trainer.fd).steps_after(0)
        assert lost == 5000 - layout.RING_ENTRIES
        assert [step.step for step in steps] == list(range(lost + 1, 5001))
        assert opened(trainer.fd).steps_after(4999)[1] == 0
        assert opened(trainer.fd).steps_after(5000) == ((), 0)

    def test_both_readers_give_the_same_bytes(self, trainer):
        if TOOLS is None:
            pytest.skip(WHY_NOT)
        trainer.say("publish 77")
        trainer.say("push 1 5000")
        native_page, twin = TOOLS.PageReader(trainer.fd), PageTwin(trainer.fd)
        assert native_page.header() == twin.header() == os.pread(trainer.fd, 256, 0)
        body_at = layout.TRAIN_OFFSET + layout.TRAIN_BODY_IN_SECTION
        body = os.pread(trainer.fd, layout.TRAIN_BODY_BYTES, body_at)
        assert native_page.train() == twin.train() == body
        for step in (0, 903, 904, 4998, 5000, 6000):
            assert native_page.steps_after(step) == twin.steps_after(step)

    def test_a_trainer_killed_in_mid_copy_leaves_its_steps(self, trainer, opened):
        page = opened(trainer.fd)
        trainer.say("publish 5")
        trainer.say("push 1 3")
        trainer.say("die")
        trainer.kill()
        assert page.train() is None
        assert [step.step for step in page.steps_after(0)[0]] == [1, 2, 3]

    def test_the_next_copy_heals_the_lock(self, trainer, opened):
        page = opened(trainer.fd)
        trainer.say("die")
        assert page.train() is None
        trainer.say("publish 5")
        assert page.train().steps_total == 6


class TestGpuSections:
    @pytest.mark.skipif(TOOLS is None, reason=WHY_NOT)
    def test_classes_of_work_are_those_of_cpp(self):
        assert TOOLS.work_class_names() == WORK_CLASSES

    def test_a_fresh_page_has_layers_that_are_off(self, trainer, opened):
        page = opened(trainer.fd)
        assert (page.gpu().state, page.gpu().reason) == ("off", "")
        assert page.cupti().work == ()
        assert page.gpu_steps_after(0) == ()

    def test_fields_have_the_words_of_the_layout(self, trainer, opened):
        page = opened(trainer.fd)
        trainer.say("gpu 1000")
        gpu, cupti = page.gpu(), page.cupti()
        assert (gpu.state, gpu.reason) == ("running", "running")
        assert (gpu.steps_timed_total, gpu.last_step_ns, gpu.stride) == (1002, 1006, 1014)
        assert gpu.phase_ns_total == (1016, 1017, 1018, 1019, 1020)
        assert gpu.step_histogram[0] == 1024
        assert (cupti.state, cupti.reason) == ("disarmed", "x" * layout.REASON_BYTES)
        assert (cupti.cupti_version, cupti.records_total, cupti.yielded_ns_total) == (
            1002,
            1004,
            1036,
        )
        assert (cupti.busy_ns_total, cupti.launches_total) == (1022, 1031)
        assert cupti.gap_histogram[0] == 1064
        name, work = cupti.work[1]
        assert name == "attention"
        assert (work.count, work.ns_total, work.ns_max, work.bytes_total) == (
            1124,
            1125,
            1126,
            1127,
        )
        assert work.histogram == tuple(range(1128, 1152))
        assert len(cupti.work) == len(WORK_CLASSES)

    def test_gpu_times_of_steps(self, trainer, opened):
        page = opened(trainer.fd)
        trainer.say("gpu_push 1 2000")
        steps = page.gpu_steps_after(1500)
        assert [step.step for step in steps] == list(range(1501, 2001))
        assert steps[0].gpu_ns == 150101
        assert steps[0].phase_ns == tuple(range(150102, 150107))
        assert len(page.gpu_steps_after(0)) == layout.GPU_RING_ENTRIES

    def test_a_page_of_the_minor_before_has_none(self, made, opened):
        page = opened(made(content=page_peer.header(minor=0)))
        assert page.gpu() is None
        assert page.cupti() is None
        assert page.gpu_steps_after(0) == ()

    @pytest.mark.parametrize("field", ["gpu_offset", "cupti_offset", "gpu_ring_offset"])
    @pytest.mark.parametrize("value", [8, 257, layout.PAGE_BYTES, 2**63, 2**64 - 8])
    def test_offsets_outside_of_the_page_are_refused(self, made, opened, field, value):
        sound = {
            "gpu_bytes": layout.GPU_BODY_BYTES + 64,
            "cupti_bytes": layout.CUPTI_BODY_BYTES + 64,
            "gpu_ring_entry_bytes": layout.GPU_RING_ENTRY_BYTES,
            "gpu_ring_entries": layout.GPU_RING_ENTRIES,
        }
        with pytest.raises(PageError, match="outside"):
            opened(made(content=page_peer.header(**sound, **{field: value})))

    @pytest.mark.parametrize(
        "changes",
        [
            {"gpu_offset": layout.GPU_OFFSET, "gpu_bytes": 64},
            {"cupti_offset": layout.CUPTI_OFFSET, "cupti_bytes": 2**63},
            {
                "gpu_ring_offset": layout.GPU_RING_OFFSET,
                "gpu_ring_entries": 2**61,
                "gpu_ring_entry_bytes": 64,
            },
            {
                "gpu_ring_offset": layout.GPU_RING_OFFSET,
                "gpu_ring_entries": 4,
                "gpu_ring_entry_bytes": 2**62,
            },
            {
                "gpu_ring_offset": layout.GPU_RING_OFFSET,
                "gpu_ring_entries": 0,
                "gpu_ring_entry_bytes": 64,
            },
        ],
    )
    def test_sizes_beyond_the_page_are_refused(self, made, opened, changes):
        with pytest.raises(PageError, match="outside"):
            opened(made(content=page_peer.header(**changes)))


class TestEvents:
    @pytest.mark.skipif(TOOLS is None, reason=WHY_NOT)
    def test_kinds_are_those_of_cpp(self):
        assert TOOLS.event_kind_names() == KINDS

    def test_a_fresh_page_has_seen_nothing(self, trainer, opened):
        events = opened(trainer.fd).events()
        assert (events.watched, events.unseen, events.sums) == (frozenset(), "", ())
        assert events.cudnn_benchmark is None
        assert opened(trainer.fd).events_after(0) == ()

    def test_fields_have_the_words_of_the_layout(self, trainer, opened):
        page = opened(trainer.fd)
        trainer.say("events 1000 1 3")
        events = page.events()
        assert events.watched == {KINDS[bit] for bit in range(len(KINDS)) if 1000 >> bit & 1}
        assert (events.events_total, events.cudnn_benchmark) == (1001, None)
        assert events.cudnn_benchmark_changes_total == 1003
        assert events.unseen == "no CUDA"
        kind, sums = events.sums[1]
        assert kind == KINDS[1]
        assert (sums.count, sums.ns_total, sums.ns_max) == (1016, 1017, 1018)
        assert (sums.last_begin_mono_ns, sums.last_ns, sums.last_step) == (1019, 1020, 1021)
        assert len(events.sums) == len(KINDS)

    def test_events_of_a_kind_from_the_future_are_left_out(self, trainer, opened):
        trainer.say("events 1000 1 3")  # kind 101 and on
        assert opened(trainer.fd).events_after(0) == ()

    @pytest.mark.parametrize("value", [8, 257, layout.PAGE_BYTES, 2**63, 2**64 - 8])
    def test_an_offset_outside_of_the_page_is_refused(self, made, opened, value):
        fields = {"events_offset": value, "events_bytes": layout.EVENTS_BYTES}
        with pytest.raises(PageError, match="outside"):
            opened(made(content=page_peer.header(**fields)))

    def test_a_size_beyond_the_page_is_refused(self, made, opened):
        fields = {"events_offset": layout.EVENTS_OFFSET, "events_bytes": layout.EVENTS_BYTES - 8}
        with pytest.raises(PageError, match="outside"):
            opened(made(content=page_peer.header(**fields)))

    def test_a_page_of_the_minor_before_has_none(self, made, opened):
        page = opened(made(content=page_peer.header(minor=1)))
        assert page.events() is None
        assert page.events_after(0) == ()

    def test_both_readers_give_the_same_bytes(self, trainer):
        if TOOLS is None:
            pytest.skip(WHY_NOT)
        trainer.say("events 7 1 700")
        native_page, twin = TOOLS.PageReader(trainer.fd), PageTwin(trainer.fd)
        assert native_page.events() == twin.events()
        for number in (0, 450, 699, 700):
            assert native_page.events_after(number) == twin.events_after(number)
        assert len(twin.events_after(0)) == layout.EVENT_RING_ENTRIES * layout.EVENT_ENTRY_BYTES


class TestRunSection:
    def test_a_fresh_page_has_one_that_knows_nothing(self, trainer, opened):
        run = opened(trainer.fd).run()
        assert (run.state, run.startup_ns, run.restarts) == ("starting", None, None)
        assert (run.last_save_real_ns, run.flops_per_token) == (None, None)
        loader = run.loader
        assert (loader.workers, loader.prefetch_factor, loader.pins_memory) == (None, None, None)
        assert (loader.sharing_strategy, loader.start_method, loader.batch_size) == ("", "", None)

    def test_each_field_comes_from_its_word(self, trainer, opened):
        trainer.say("run 1000")
        run = opened(trainer.fd).run()
        assert run.state == "starting"  # 1000 is no state that we know
        assert (run.state_since_mono_ns, run.process_start_mono_ns) == (1001, 1002)
        assert (run.startup_ns, run.first_step_ns) == (1003, 1004)
        assert (run.evaluations_total, run.evaluation_batches_total) == (1005, 1006)
        assert (run.saves_total, run.saves_failed_total) == (1007, 1008)
        assert (run.background_save_ns_total, run.last_save_real_ns) == (1009, 1010)
        assert run.last_save_ns == 1011
        assert (run.flops_per_sample, run.flops_per_token, run.restarts) == (1012, 1013, 1013)
        loader = run.loader
        assert (loader.started_total, loader.workers, loader.prefetch_factor) == (1016, 1016, 1017)
        assert (loader.pins_memory, loader.persistent_workers) == (False, True)  # of 1018
        assert (loader.sharing_strategy, loader.start_method, loader.batch_size) == ("", "", 1022)
        assert (loader.first_batches_total, loader.first_batch_ns_total) == (1023, 1024)
        assert (loader.last_first_batch_ns, loader.queue_looks_total) == (1025, 1026)
        assert (loader.queue_depth_total, loader.queue_empty_total) == (1027, 1028)
        assert (loader.batch_looks_total, loader.batch_bytes_total) == (1029, 1030)
        assert loader.last_batch_bytes == 1031
        assert loader.wait_histogram == tuple(range(1032, 1064))
        assert loader.wait_ns_total == 1064

    def test_both_readers_give_the_same_bytes(self, trainer):
        if TOOLS is None:
            pytest.skip(WHY_NOT)
        trainer.say("run 7")
        assert TOOLS.PageReader(trainer.fd).run() == PageTwin(trainer.fd).run()

    def test_a_page_of_the_minor_before_has_none(self, made, opened):
        page = opened(made(content=page_peer.header(minor=1)))
        assert page.run() is None

    @pytest.mark.parametrize(
        "changes",
        [
            *({"run_offset": at} for at in (8, 257, layout.PAGE_BYTES, 2**63, 2**64 - 8)),
            {"run_offset": layout.RUN_OFFSET, "run_bytes": 64},
            {"run_offset": layout.RUN_OFFSET, "run_bytes": 2**63},
        ],
    )
    def test_a_place_outside_of_the_page_is_refused(self, made, opened, changes):
        sound = {"run_bytes": layout.RUN_BODY_BYTES + 64}
        with pytest.raises(PageError, match="run section lies outside"):
            opened(made(content=page_peer.header(**{**sound, **changes})))


class TestCollectives:
    def test_fields_have_the_words_of_the_layout(self, trainer, opened):
        page = opened(trainer.fd)
        assert page.collectives().groups == ()
        trainer.say("collectives 1000")
        found = page.collectives()
        assert (found.groups_total, found.ddp_samples_total, found.ddp_bytes) == (2, 1001, 1007)
        assert (found.ddp_comm_ns_total, found.ddp_last_comm_ns) == (1002, 1006)
        group = found.groups[1]
        assert (group.name, group.size, group.rank) == ("tensor", 1020, 1021)
        assert (group.sequence, group.changed_mono_ns) == (1022, 1023)
        assert len(found.groups) == 2

    @pytest.mark.parametrize("value", [8, 257, layout.PAGE_BYTES, 2**63, 2**64 - 8])
    def test_an_offset_outside_of_the_page_is_refused(self, made, opened, value):
        size = layout.COLLECTIVES_BODY_BYTES + layout.TRAIN_BODY_IN_SECTION
        fields = {"collectives_offset": value, "collectives_bytes": size}
        with pytest.raises(PageError, match="outside"):
            opened(made(content=page_peer.header(**fields)))

    def test_a_page_of_the_minor_before_has_none(self, made, opened):
        assert opened(made(content=page_peer.header(minor=3))).collectives() is None


class TestMemory:
    @pytest.mark.skipif(TOOLS is None, reason=WHY_NOT)
    def test_values_are_those_of_cpp(self):
        assert TOOLS.allocator_value_names() == ALLOCATOR_VALUES
        assert TOOLS.host_value_names() == HOST_VALUES

    def test_a_fresh_page_tells_of_no_memory(self, trainer, opened):
        memory = opened(trainer.fd).memory()
        assert (memory.allocators, memory.host) == ((), {})

    def test_fields_have_the_words_of_the_layout(self, trainer, opened):
        trainer.say("memory 1000")
        memory = opened(trainer.fd).memory()
        first, second = memory.allocators
        assert (first.uuid, second.uuid) == ("", "GPU-1")
        at = 1000 + 32 + 24  # of the second one's words
        assert (second.device, second.step, second.read_mono_ns) == (at + 5, at + 6, at + 7)
        assert second.values == {"allocated_bytes": at + 9, "ooms_total": at + 18}
        assert memory.host["rss_bytes"] == (1015, 1001)
        assert memory.host["workers_uss_bytes"] == (1023, 1009)
        assert tuple(memory.host) == HOST_VALUES

    def test_a_number_of_devices_that_lies_leads_nowhere(self, trainer, opened):
        trainer.say("memory 1000")
        os.pwrite(trainer.fd, b"\xff" * 8, layout.MEMORY_OFFSET + layout.TRAIN_BODY_IN_SECTION)
        assert len(opened(trainer.fd).memory().allocators) == layout.ALLOCATOR_DEVICES

    @pytest.mark.parametrize("value", [8, 257, layout.PAGE_BYTES, 2**63, 2**64 - 8])
    def test_an_offset_outside_of_the_page_is_refused(self, made, opened, value):
        size = layout.MEMORY_BODY_BYTES + layout.TRAIN_BODY_IN_SECTION
        with pytest.raises(PageError, match="outside"):
            opened(made(content=page_peer.header(memory_offset=value, memory_bytes=size)))

    def test_a_section_that_is_too_short_is_refused(self, made, opened):
        fields = {"memory_offset": layout.MEMORY_OFFSET, "memory_bytes": 64}
        with pytest.raises(PageError, match="its section of memory lies outside of it"):
            opened(made(content=page_peer.header(**fields)))


class TestRecorder:
    def test_fields_have_the_words_of_the_layout(self, trainer, opened):
        page = opened(trainer.fd)
        assert page.recorder().groups == ()
        trainer.say("recorder 1000")
        found = page.recorder()
        assert (found.reads_total, found.unsized_total, found.reason) == (1000, 1006, "mpi: none")
        group = found.groups[1]
        assert (group.name, group.backend, group.open_op) == ("tensor", "gloo", "all_reduce")
        first = 1000 + 36 + 12
        assert (group.enqueued, group.started, group.completed) == tuple(
            range(first + 6, first + 9)
        )
        assert (group.open_bytes, group.open_real_ns) == (first + 10, first + 11)
        op = found.ops[1]
        first = 1000 + 228 + 10
        assert (op.group, op.name, op.count_total) == (1, "all_reduce", first + 6)
        assert (op.bytes_total, op.timed_total, op.time_ns_total) == tuple(
            range(first + 7, first + 10)
        )
        assert found.arrivals[1] == (1, 1000 + 628 + 4, 1000 + 628 + 5)

    @pytest.mark.parametrize("value", [8, 257, layout.PAGE_BYTES, 2**63, 2**64 - 8])
    def test_an_offset_outside_of_the_page_is_refused(self, made, opened, value):
        size = layout.RECORDER_BODY_BYTES + layout.TRAIN_BODY_IN_SECTION
        fields = {"recorder_offset": value, "recorder_bytes": size}
        with pytest.raises(PageError, match="outside"):
            opened(made(content=page_peer.header(**fields)))

    def test_a_page_of_the_minor_before_has_none(self, made, opened):
        assert opened(made(content=page_peer.header(minor=5))).recorder() is None

    def test_counts_and_places_beyond_the_tables_are_left_away(self):
        body = recorder_sample(b"\xff" * layout.RECORDER_BODY_BYTES)
        assert len(body.groups) == layout.RECORDED_GROUPS
        assert body.ops == body.arrivals == ()
        assert {group.open_op for group in body.groups} == {"?"}


SECTION_HEAD = layout.TRAIN_BODY_IN_SECTION
MINORS = [  # where the page of each ended, and what its header gained
    (layout.GPU_OFFSET, {}),
    (
        layout.EVENTS_OFFSET,
        {
            "gpu_offset": layout.GPU_OFFSET,
            "gpu_bytes": SECTION_HEAD + layout.GPU_BODY_BYTES,
            "cupti_offset": layout.CUPTI_OFFSET,
            "cupti_bytes": SECTION_HEAD + layout.CUPTI_BODY_BYTES,
            "gpu_ring_offset": layout.GPU_RING_OFFSET,
            "gpu_ring_entry_bytes": layout.GPU_RING_ENTRY_BYTES,
            "gpu_ring_entries": layout.GPU_RING_ENTRIES,
        },
    ),
    (
        layout.RUN_OFFSET,
        {"events_offset": layout.EVENTS_OFFSET, "events_bytes": layout.EVENTS_BYTES},
    ),
    (
        layout.COLLECTIVES_OFFSET,
        {"run_offset": layout.RUN_OFFSET, "run_bytes": SECTION_HEAD + layout.RUN_BODY_BYTES},
    ),
    (
        layout.MEMORY_OFFSET,
        {
            "collectives_offset": layout.COLLECTIVES_OFFSET,
            "collectives_bytes": SECTION_HEAD + layout.COLLECTIVES_BODY_BYTES,
        },
    ),
    (
        layout.RECORDER_OFFSET,
        {
            "memory_offset": layout.MEMORY_OFFSET,
            "memory_bytes": SECTION_HEAD + layout.MEMORY_BODY_BYTES,
        },
    ),
    (
        layout.PAGE_BYTES,
        {
            "recorder_offset": layout.RECORDER_OFFSET,
            "recorder_bytes": SECTION_HEAD + layout.RECORDER_BODY_BYTES,
        },
    ),
]


class TestOtherVersions:
    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("minor", range(layout.MINOR + 1))
    def test_each_minor_reads_with_the_sections_that_it_had(self, trainer, made, opened, minor):
        for line in ("publish 1", "push 1 9", "gpu 1", "gpu_push 1 9", "events 1 1 9", "run 1"):
            trainer.say(line)
        trainer.say("collectives 1")
        trainer.say("memory 1")
        trainer.say("recorder 1")
        newest = os.pread(trainer.fd, layout.PAGE_BYTES, 0)
        size = MINORS[minor][0]
        fields = {name: at for _, more in MINORS[: minor + 1] for name, at in more.items()}
        head = page_peer.header(minor=minor, page_bytes=size, **fields)
        page = opened(
            made(
                size=size,
                content=head.ljust(layout.HEADER_BYTES, b"\0") + newest[layout.HEADER_BYTES : size],
            )
        )
        assert page.header.minor == minor
        assert page.train().steps_total == 2
        assert [step.step for step in page.steps_after(0)[0]] == list(range(1, 10))
        for name in ("gpu", "cupti", "run", "events", "collectives", "memory", "recorder"):
            assert (getattr(page, name)() is not None) == (f"{name}_offset" in fields), name
        assert len(page.gpu_steps_after(0)) == (9 if minor >= 1 else 0)

    def test_a_later_minor_with_more_room_is_read(self, made, opened):
        entry_bytes, entries, ring_at = 256, 8, 8192
        size = ring_at + entry_bytes * entries
        fd = made(
            size=size,
            content=page_peer.header(
                minor=9,
                page_bytes=size,
                train_offset=4096,
                train_bytes=layout.TRAIN_SECTION_BYTES + 800,
                ring_offset=ring_at,
                ring_entry_bytes=entry_bytes,
                ring_entries=entries,
            ),
        )
        for step in range(5, 13):
            at = ring_at + step % entries * entry_bytes
            os.pwrite(fd, page_peer.entry(step, entry_bytes), at)
        page = opened(fd)
        assert page.header.minor == 9
        assert page.train().steps_total == 0
        steps, lost = page.steps_after(0)
        assert [step.step for step in steps] == list(range(5, 13))
        assert lost == 4

    @pytest.mark.parametrize("major", [0, layout.MAJOR + 1])
    def test_another_major_is_refused_by_name(self, made, opened, major):
        with pytest.raises(PageError, match=f"page layout {major}"):
            opened(made(content=page_peer.header(major=major)))


class TestHostileTrainer:
    @pytest.mark.parametrize(
        ("how", "says"),
        [
            ({"seals": 0}, "not sealed"),
            ({"seals": fcntl.F_SEAL_SHRINK}, "not sealed"),
            ({"size": 0}, "no size"),
            ({"size": 200}, "no size"),
            ({"size": 1 << 40}, "no size"),
            ({}, "not ready"),
            ({"content": page_peer.header(magic=b"PYMONPG!")}, "not ready"),
            ({"content": page_peer.header(page_bytes=layout.PAGE_BYTES * 2)}, "another size"),
        ],
    )
    def test_no_page_of_ours(self, made, opened, how, says):
        with pytest.raises(PageError, match=says):
            opened(made(**how))

    @pytest.mark.parametrize("value", [0, 8, 257, layout.PAGE_BYTES, 2**63, 2**64 - 8])
    @pytest.mark.parametrize("field", ["train_offset", "ring_offset"])
    def test_offsets_outside_of_the_page(self, made, opened, field, value):
        with pytest.raises(PageError, match="outside"):
            opened(made(content=page_peer.header(**{field: value})))

    @pytest.mark.parametrize("value", [0, 2**32, 2**61, 2**64 - 1])
    @pytest.mark.parametrize("field", ["train_bytes", "ring_entry_bytes", "ring_entries"])
    def test_sizes_beyond_the_page(self, made, opened, field, value):
        with pytest.raises(PageError, match="outside"):
            opened(made(content=page_peer.header(**{field: value})))

    def test_what_is_no_memfd(self, opened, tmp_path):
        path = tmp_path / "page"
        path.write_bytes(page_peer.header().ljust(layout.PAGE_BYTES, b"\0"))
        reading, writing = os.pipe()
        with path.open("rb") as file:
            for fd in (file.fileno(), reading, -1):
                with pytest.raises(PageError):
                    opened(fd)
        os.close(reading)
        os.close(writing)

    def test_a_descriptor_that_cannot_be_read(self, made, opened):
        fd = made(content=page_peer.header())
        path_only = os.open(f"/proc/self/fd/{fd}", os.O_PATH)
        write_only = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
        for useless in (path_only, write_only):
            with pytest.raises(PageError):
                opened(useless)
            os.close(useless)

    def test_a_page_of_noise_is_nonsense_but_harmless(self, made, opened):
        head = page_peer.header()
        noise = b"\xee" * (layout.PAGE_BYTES - len(head))  # the seqlock is even
        page = opened(made(content=head + noise))
        assert page.train().capturing
        assert len(page.train().user_phase_ns_total) == layout.USER_PHASES
        steps, lost = page.steps_after(0)
        assert len(steps) <= layout.RING_ENTRIES
        assert lost >= 0

    def test_a_header_changed_after_the_check_misleads_nobody(self, made, opened):
        fd = made(content=page_peer.header())
        os.pwrite(fd, page_peer.entry(1), layout.RING_OFFSET + layout.RING_ENTRY_BYTES)
        page = opened(fd)
        os.pwrite(fd, b"\xff" * layout.HEADER_BYTES, 0)
        assert page.header.pid == 1
        assert [step.step for step in page.steps_after(0)[0]] == [1]


def test_names_of_phases_are_cut_at_nul_and_made_printable(made, opened):
    fd = made(content=page_peer.header())
    at = layout.TRAIN_OFFSET + layout.TRAIN_BODY_IN_SECTION
    os.pwrite(fd, (2).to_bytes(8, "little"), at + 8 * 14)
    os.pwrite(fd, "prüfen\0x".encode(), at + layout.TRAIN_NAMES_BYTE)
    os.pwrite(fd, b"a\n\x1b[31m\xff", at + layout.TRAIN_NAMES_BYTE + layout.USER_PHASE_NAME_BYTES)
    names = [name for name, _ in opened(fd).train().user_phase_ns_total]
    assert names[0] == "prüfen"
    assert names[1] == "a\ufffd\ufffd[31m\ufffd"


def test_descriptors_are_not_kept(made, backend):
    before = len(os.listdir("/proc/self/fd"))
    fd = made(content=page_peer.header())
    page = PageReader.open(fd, backend)
    page.close()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    with pytest.raises(PageError, match="closed"):
        page.train()


def test_the_native_reader_is_the_default():
    fd = page_peer.memfd(content=page_peer.header())
    page = PageReader.open(fd)
    os.close(fd)
    assert page.header.attach_id == bytes(range(16)).hex()
    assert page.train() is not None
