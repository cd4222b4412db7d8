// Controls of the libcupti double. Built for tests only, never installed.
//
// It behaves as CUPTI does where a monitor can come to depend on it:
//   - one pair of callbacks; the last one registered wins, and buffers that were lent before come back through it
//   - one subscriber, else CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
//   - a flush hands out buffers whose records are all finished; a forced one all, and what still ran has no end then
//   - no record of a kind that is not enabled; no buffer, no record, and it is counted as dropped
//   - once a timestamp callback is registered, record times come from it, but for the first few of each session
//   - record sizes as in the version of DOUBLE_CUPTI_VERSION (default 130001)
//   - a buffer that we promised to zero and did not is an abort
// DOUBLE_CUPTI_FAIL="cuptiActivityEnable=999,..." makes calls fail; DOUBLE_CUPTI_SCRIPT names a file to play once
// callbacks are registered.
//
// A script, one line each:
//   kernel NAME DURATION_NS GAP_NS STREAM COUNT      graph NAME DURATION_NS GAP_NS STREAM COUNT (one launch)
//   mixed NAME DURATION_NS STREAM STREAM COUNT       two launches of graphs at once, their kernels in turns
//   at NAME BEGIN_NS DURATION_NS STREAM              a kernel that began so long after the script's start
//   copy h2d|d2h|d2d|p2p BYTES DURATION_NS COUNT     set BYTES DURATION_NS COUNT
//   sync event|wait|stream|context DURATION_NS COUNT
//   open NAME / close     a kernel that runs until `close`
//   zero NAME COUNT       kernels without times        bad NAME COUNT   kernels with impossible ones
//   device N              the device of what follows   drop N           records lost
//   sleep MS              rate RECORDS_PER_S (0: as fast as it can)
#pragma once

#include <cstddef>
#include <cstdint>

#include "doubles/cuda/cuda_double.h"

PYMON_DOUBLE void cupti_double_play(const char* script);  // in the calling thread
PYMON_DOUBLE uint64_t cupti_double_calls(const char* function);
PYMON_DOUBLE void cupti_double_tick(double ticks_per_ns);  // of the registered timestamp callback
// A module was unloaded and another kernel's name lies at the same address now; `to` is no longer than `from`.
PYMON_DOUBLE void cupti_double_rename(const char* from, const char* to);
PYMON_DOUBLE uint32_t cupti_double_enabled_kinds();  // how many
PYMON_DOUBLE uint64_t cupti_double_records();  // that were written into buffers, whosever
// Calls of `function` take so much longer from now on, with no lock held, as a CUPTI that is stuck in the driver.
PYMON_DOUBLE void cupti_double_slow(const char* function, uint32_t ms);
// Fills `buffer` with kernel records of these names in this order; gives the bytes used and the number of records.
PYMON_DOUBLE size_t cupti_double_fill(uint8_t* buffer, size_t bytes, const char* const* names, const uint32_t* order,
                                      size_t orders, size_t* records);
