"""The metric families of the host, of control groups and of processes by the kernel, in the order of writing."""

from __future__ import annotations

from typing import Final

from pymon.model.metric import Metric

_PROCESS: Final = ("rank", "job_id", "pid")
_GPU: Final = ("gpu", "uuid")

# What a node has once; few, so that the cap never reaches them.
NODE_METRICS: Final[tuple[Metric, ...]] = (
    Metric("pymon_host_cpus", "gauge", "Processors that are online."),
    Metric("pymon_host_cores", "gauge", "Physical cores."),
    Metric("pymon_host_numa_nodes", "gauge", "NUMA nodes."),
    Metric("pymon_host_cpu_busy_ratio", "gauge", "Share of processor time that was used since the tick before."),
    Metric("pymon_host_cpu_seconds_total", "counter", "Processor time by mode, of all processors.", ("mode",)),
    Metric("pymon_host_memory_total_bytes", "gauge", "Memory of the host."),
    Metric("pymon_host_memory_available_bytes", "gauge", "Memory that can be had without swapping (MemAvailable)."),
    Metric("pymon_host_memory_free_bytes", "gauge", "Memory that nothing uses."),
    Metric("pymon_host_memory_cached_bytes", "gauge", "Page cache, /dev/shm and other tmpfs included."),
    Metric("pymon_host_memory_buffers_bytes", "gauge", "Buffers of block devices."),
    Metric("pymon_host_memory_shared_bytes", "gauge", "/dev/shm and other tmpfs (Shmem)."),
    Metric("pymon_host_memory_dirty_bytes", "gauge", "Page cache that waits to be written."),
    Metric("pymon_host_memory_writeback_bytes", "gauge", "Page cache that is being written."),
    Metric("pymon_host_swap_total_bytes", "gauge", "Swap space."),
    Metric("pymon_host_swap_free_bytes", "gauge", "Swap space that nothing uses."),
    Metric("pymon_host_swap_in_bytes_total", "counter", "Read from swap space."),
    Metric("pymon_host_swap_out_bytes_total", "counter", "Written to swap space."),
    Metric("pymon_host_major_faults_total", "counter", "Page faults that had to read."),
    Metric("pymon_host_oom_kills_total", "counter", "Processes that the kernel killed for want of memory."),
    Metric("pymon_host_pressure_waiting_seconds_total", "counter", "Time in which some work waited for the resource "
           "(PSI).", ("resource",)),
    Metric("pymon_host_pressure_stalled_seconds_total", "counter", "Time in which all work waited for it.",
           ("resource",)),
    Metric("pymon_host_processes_blocked", "gauge", "Processes that wait for I/O now (procs_blocked)."),
    Metric("pymon_host_processes_uninterruptible", "gauge", "Processes in state D at the last look, each 15 s; kernel "
           "threads are left out."),
    Metric("pymon_host_processes_stuck", "gauge", "Of them, those that were so at the look before and did not run in "
           "between."),
    Metric("pymon_shm_total_bytes", "gauge", "Size of the daemon's own /dev/shm."),
    Metric("pymon_shm_used_bytes", "gauge", "Used bytes of it."),
    Metric("pymon_shm_free_bytes", "gauge", "Free bytes of it."),
    Metric("pymon_readings_absent", "gauge", "Readings of a collector that are not there, by what they are and why; "
           "`pymon status` gives an example.", ("collector", "what", "why")),
)  # fmt: skip

# By process, control group or device.
HOST_METRICS: Final[tuple[Metric, ...]] = (
    Metric("pymon_process_usable_cpus", "gauge", "Processors that the process may use: the lesser of its affinity and "
           "the tightest quota; its floor bounds the workers that make sense.", _PROCESS),
    Metric("pymon_process_affinity_cpus", "gauge", "Logical processors in its affinity, which lies within its cpuset.",
           _PROCESS),
    Metric("pymon_process_affinity_cores", "gauge", "Physical cores of these.", _PROCESS),
    Metric("pymon_process_numa_nodes", "gauge", "NUMA nodes of these.", _PROCESS),
    Metric("pymon_process_gpu_numa_distance", "gauge", "From the processors that it may use to its GPU, by the "
           "firmware's table: 10 is the same node. `farthest` exceeds `nearest` where it is not bound to one node.",
           ("bound", *_GPU, *_PROCESS)),
    Metric("pymon_process_cpu_seconds_total", "counter", "Processor time of the process.", _PROCESS),
    Metric("pymon_process_resident_memory_bytes", "gauge", "Resident memory of the process.", _PROCESS),
    Metric("pymon_process_threads", "gauge", "Its threads.", _PROCESS),
    Metric("pymon_process_open_fds", "gauge", "Its open descriptors.", _PROCESS),
    Metric("pymon_process_max_fds", "gauge", "Its soft limit of open descriptors.", _PROCESS),
    Metric("pymon_process_shm_total_bytes", "gauge", "Size of /dev/shm as the process has it mounted.", _PROCESS),
    Metric("pymon_process_shm_used_bytes", "gauge", "Used bytes of it.", _PROCESS),
    Metric("pymon_process_shm_free_bytes", "gauge", "Free bytes of it.", _PROCESS),
    Metric("pymon_loader_workers", "gauge", "Its loader workers, by state.", ("state", *_PROCESS)),
    Metric("pymon_loader_workers_started_total", "counter", "Loader workers seen to start.", _PROCESS),
    Metric("pymon_loader_workers_cpu_seconds_total", "counter", "Processor time of its loader workers, those that "
           "ended included.", _PROCESS),
    Metric("pymon_loader_workers_resident_memory_bytes", "gauge", "Resident memory of its loader workers; pages that "
           "they share count for each.", _PROCESS),
    Metric("pymon_loader_workers_open_fds", "gauge", "Open descriptors of its loader workers.", _PROCESS),
    Metric("pymon_loader_workers_usable_cpus", "gauge", "Logical processors that at least one of its loader workers "
           "may run on.", _PROCESS),
    Metric("pymon_cgroup_cpu_quota_cpus", "gauge", "The tightest quota of the group and all above it, in processors.",
           ("cgroup",)),
    Metric("pymon_cgroup_cpu_periods_total", "counter", "Periods of the group that has the quota.", ("cgroup",)),
    Metric("pymon_cgroup_cpu_throttled_periods_total", "counter", "Periods of it that ended throttled.", ("cgroup",)),
    Metric("pymon_cgroup_cpu_throttled_seconds_total", "counter", "Time for which it was throttled.", ("cgroup",)),
    Metric("pymon_cgroup_cpu_seconds_total", "counter", "Processor time of the group.", ("cgroup",)),
    Metric("pymon_cgroup_cpuset_cpus", "gauge", "Processors that the group may run on.", ("cgroup",)),
    Metric("pymon_cgroup_memory_limit_bytes", "gauge", "The tightest limit of the group and all above it.",
           ("cgroup",)),
    Metric("pymon_cgroup_memory_used_bytes", "gauge", "Charged to the group that has the limit, else to the named one; "
           "page cache included.", ("cgroup",)),
    Metric("pymon_cgroup_memory_cache_bytes", "gauge", "Of it, page cache and tmpfs.", ("cgroup",)),
    Metric("pymon_cgroup_memory_anonymous_bytes", "gauge", "Of it, the processes' own memory.", ("cgroup",)),
    Metric("pymon_cgroup_memory_shared_bytes", "gauge", "Of it, /dev/shm and other tmpfs.", ("cgroup",)),
    Metric("pymon_cgroup_oom_kills_total", "counter", "Processes of it that the kernel killed for want of memory.",
           ("cgroup",)),
    Metric("pymon_cgroup_pressure_waiting_seconds_total", "counter", "Time in which some of the group's work waited "
           "for the resource (PSI; version 2).", ("cgroup", "resource")),
    Metric("pymon_cgroup_pressure_stalled_seconds_total", "counter", "Time in which all of it waited.",
           ("cgroup", "resource")),
    Metric("pymon_disk_reads_total", "counter", "Reads of the disk.", ("device",)),
    Metric("pymon_disk_read_bytes_total", "counter", "Bytes read.", ("device",)),
    Metric("pymon_disk_read_seconds_total", "counter", "Time that reads took, summed over them.", ("device",)),
    Metric("pymon_disk_writes_total", "counter", "Writes of the disk.", ("device",)),
    Metric("pymon_disk_written_bytes_total", "counter", "Bytes written.", ("device",)),
    Metric("pymon_disk_write_seconds_total", "counter", "Time that writes took, summed over them.", ("device",)),
    Metric("pymon_disk_busy_seconds_total", "counter", "Time in which it had something to do.", ("device",)),
    Metric("pymon_network_receive_bytes_total", "counter", "Bytes received.", ("device",)),
    Metric("pymon_network_transmit_bytes_total", "counter", "Bytes sent.", ("device",)),
    Metric("pymon_network_errors_total", "counter", "Packets that were damaged.", ("device", "direction")),
    Metric("pymon_network_drops_total", "counter", "Packets that were dropped.", ("device", "direction")),
    Metric("pymon_network_speed_bytes_per_second", "gauge", "Speed of the link; absent where it is down.",
           ("device",)),
    Metric("pymon_infiniband_port_up", "gauge", "1 where the port is active.", ("device", "port")),
    Metric("pymon_infiniband_rate_bytes_per_second", "gauge", "Rate of the port.", ("device", "port")),
    Metric("pymon_infiniband_receive_bytes_total", "counter", "Bytes received.", ("device", "port")),
    Metric("pymon_infiniband_transmit_bytes_total", "counter", "Bytes sent.", ("device", "port")),
    Metric("pymon_infiniband_transmit_waits_total", "counter", "Ticks of the port in which it had data and might not "
           "send (congestion).", ("device", "port")),
    Metric("pymon_infiniband_errors_total", "counter", "Errors and lost links.", ("device", "port", "kind")),
    Metric("pymon_pci_link_width", "gauge", "Lanes in use.", ("address", "kind")),
    Metric("pymon_pci_link_width_max", "gauge", "Lanes that the device has.", ("address", "kind")),
    Metric("pymon_pci_link_generation", "gauge", "PCI Express generation in use; an idle GPU lowers it to save power.",
           ("address", "kind")),
    Metric("pymon_pci_link_generation_max", "gauge", "Generation that the device has.", ("address", "kind")),
    Metric("pymon_nfs_read_bytes_total", "counter", "Bytes that came over the network.", ("export",)),
    Metric("pymon_nfs_written_bytes_total", "counter", "Bytes that went over it.", ("export",)),
    Metric("pymon_nfs_requests_total", "counter", "Requests.", ("export", "operation")),
    Metric("pymon_nfs_response_seconds_total", "counter", "Time from sending a request to its answer.",
           ("export", "operation")),
    Metric("pymon_nfs_request_seconds_total", "counter", "Likewise with the time in which requests waited to be sent.",
           ("export", "operation")),
    Metric("pymon_nfs_retransmissions_total", "counter", "Requests that were sent again.", ("export", "operation")),
    Metric("pymon_nfs_timeouts_total", "counter", "Requests that got no answer for a whole timeout.",
           ("export", "operation")),
    Metric("pymon_lustre_operations_total", "counter", "What programs asked for (llite), and requests to metadata "
           "(mdc) and object servers (osc).", ("file_system", "component", "operation")),
    Metric("pymon_lustre_operation_seconds_total", "counter", "Time that they took.",
           ("file_system", "component", "operation")),
)  # fmt: skip
