// Which host call launched which GPU event, and which host calls wait for the GPU.
#pragma once

#include <vector>

#include "trace/intervals.h"
#include "trace/reader.h"

namespace pymon::trace {

// Joins by correlation; an index of -1 is none.
class Links {
 public:
  explicit Links(const Reader& reader);
  int64_t host_of(int64_t correlation) const { return find(host_, correlation); }
  int64_t gpu_of(int64_t correlation) const { return find(gpu_, correlation); }
  uint64_t launches_total() const { return host_.size(); }

 private:
  struct Link {
    int64_t correlation;
    uint32_t index;
  };
  static int64_t find(const std::vector<Link>& links, int64_t correlation);
  std::vector<Link> host_, gpu_;
};

// Calls in which the host stood until the GPU was done.
struct Blocking {
  Intervals all;     // synchronise calls, and copies that outlast their launch
  Intervals reads;   // those without host-to-device copies: what a scalar read or a synchronise costs
  std::vector<bool> is;  // by index of the host event
};

Blocking find_blocking(const Reader& reader, const Links& links);

bool copies_to_host(std::string_view copy_name);
bool copies_to_device(std::string_view copy_name);

}  // namespace pymon::trace
