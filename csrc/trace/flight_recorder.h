// What torch's Flight Recorder says, added up: it reads the JSON of `dump_fr_trace_json` and `dump_nccl_trace_json`
// (format 2.x, torch/csrc/distributed/c10d/FlightRecorderDetail.hpp).
//
// One object per recorder of the process (torch keeps gloo's and NCCL's apart); they share a body. No lock, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/layout_recorder.h"
#include "trace/json.h"

namespace pymon::trace {

class FlightRecorder {
 public:
  explicit FlightRecorder(RecorderBody* body) : body_(body) {}

  // Adds the records that are newer than those of the dump before. False where the text is no dump: then what stood
  // before the fault was added.
  bool read(std::string_view dump);

 private:
  struct Record {
    int64_t id = -1, sequence = 0, created_ns = 0, duration_ns = -1;
    std::string_view group, name, state;
    bool is_p2p = false, retired = false;
  };

  bool entry(Json& json);
  bool sizes(Json& json, std::vector<int64_t>* numbers_of_elements);
  bool types(Json& json, std::vector<int64_t>* element_bytes);
  bool text(Json& json, std::string* scratch, std::string_view* out);
  void add(const Record& record);
  int64_t bytes() const;  // of the record just read; -1: not known
  uint64_t group_of(const Record& record, std::string_view backend);
  uint64_t op_of(std::string_view op, uint64_t group);
  void choose_arrivals();

  RecorderBody* body_;
  int64_t newest_ = -1;  // id of the newest record that was added
  int64_t last_ = -1;    // id of the record just read
  bool seen_[kRecordedGroups] = {};  // in this dump
  // Kept for their memory.
  std::vector<Arrival> arrivals_;
  std::vector<int64_t> elements_[2], element_bytes_[2];  // of inputs and outputs
  std::string scratch_[3];
};

}  // namespace pymon::trace
