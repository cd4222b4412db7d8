// Reads a Kineto trace as its bytes come, whatever is wrong with it.
//
// Bytes go in by `feed`, in pieces of any size; whole events come out as columns. What cannot be read is skipped to the
// next place where an event plainly begins, and counted: a defect is a number, never a crash. Memory is bounded by
// `Limits`. No thread safety: one reader, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/event.h"
#include "trace/json.h"
#include "trace/names.h"

namespace pymon::trace {

struct Limits {
  size_t max_events = 24u << 20;        // kept; 40 bytes on the host side, 48 on the GPU side
  size_t max_name_bytes = 4096;         // one name; longer ones are cut
  size_t max_names_bytes = 256u << 20;  // all names together
  size_t max_event_bytes = 16u << 20;   // one event or one value of the head, as text
};

// What was wrong, in numbers.
struct Defects {
  uint64_t unreadable_total = 0;    // stretches skipped to the next event
  uint64_t unreadable_bytes = 0;    // in them
  uint64_t bad_values_total = 0;    // events without a usable time: NaN, negative, over 63 bits, longer than a day
  uint64_t zero_stamps_total = 0;   // GPU events stamped 0
  uint64_t over_limit_total = 0;    // events past max_events
  uint64_t cut_names_total = 0;
  bool truncated = false;           // the text ends before the array does
  bool no_events_array = false;     // no `traceEvents` and no array at the root
};

// What the head and the tail of the file say.
struct About {
  bool has_rank = false;
  int64_t rank = -1;
  bool has_world_size = false;
  int64_t world_size = -1;
  bool has_base_time = false;
  int64_t base_time_ns = 0;
  std::string trace_name;
  std::string host_name;
  std::string gpu_name;  // of the first device
  bool array_root = false;
};

class Reader {
 public:
  explicit Reader(const Limits& limits = Limits());

  void feed(const char* bytes, size_t size);
  void finish();

  const std::vector<HostEvent>& host() const { return host_; }
  const std::vector<GpuEvent>& gpu() const { return gpu_; }
  const Names& names() const { return names_; }
  const Defects& defects() const { return defects_; }
  const About& about() const { return about_; }
  uint64_t events_total() const { return events_total_; }  // of every kind, those not kept included
  uint64_t bytes_total() const { return bytes_total_; }

 private:
  enum class State : uint8_t { kStart, kRoot, kEvents, kAfterArray, kLost };

  // One event as it stands in the text.
  struct Raw {
    Text ph, cat, name, stack;
    std::string_view ts, dur, correlation, stream, device, bytes, rank;
    std::string_view pid, tid;
    bool has_ts = false, has_dur = false;
  };

  void run(bool last);
  Scan start(Json* json);
  Scan root(Json* json);
  Scan root_value(Json* json, std::string_view key);
  Scan next_event(Json* json);
  Scan parse_event(Json* json, Raw* raw);
  Scan parse_args(Json* json, Raw* raw);
  void keep(const Raw& raw);
  const char* resync(const char* from, const char* end, bool last);
  bool find_events_array(Json* json, const char* end);
  uint32_t intern(const Text& text);
  uint32_t thread(std::string_view pid, std::string_view tid);

  Limits limits_;
  State state_ = State::kStart;
  std::string pending_;
  size_t retry_at_bytes_ = 0;  // an unfinished event is not looked at again before that much of it is there
  std::string scratch_;
  std::vector<HostEvent> host_;
  std::vector<GpuEvent> gpu_;
  Names names_;
  std::unordered_map<std::string, uint32_t> threads_;
  std::string last_thread_key_;
  uint32_t last_thread_ = 0;
  Defects defects_;
  About about_;
  uint64_t events_total_ = 0;
  uint64_t bytes_total_ = 0;
  bool finished_ = false;
};

}  // namespace pymon::trace
