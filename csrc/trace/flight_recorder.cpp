#include "trace/flight_recorder.h"

#include <algorithm>
#include <cstring>

#include "core/group_name.h"

namespace pymon::trace {
namespace {

// c10::toString of a ScalarType; the prefixes hold for all of a kind (Float8_e5m2 and its like).
int64_t element_bytes(std::string_view type) {
  struct Size {
    std::string_view name;
    int64_t bytes;
  };
  static constexpr Size kSizes[] = {
      {"Byte", 1}, {"Char", 1}, {"Bool", 1}, {"Short", 2}, {"UInt16", 2}, {"Half", 2}, {"BFloat16", 2}, {"Int", 4},
      {"UInt32", 4}, {"Float", 4}, {"Long", 8}, {"UInt64", 8}, {"Double", 8}, {"ComplexHalf", 4}, {"ComplexFloat", 8},
      {"ComplexDouble", 16}, {"QInt8", 1}, {"QUInt8", 1}, {"QInt32", 4}};
  for (const Size& size : kSizes) {
    if (size.name == type) return size.bytes;
  }
  return type.substr(0, 7) == "Float8_" ? 1 : -1;
}

template <size_t size>
void put(std::string_view text, char (&out)[size]) {
  std::memset(out, 0, size);
  std::memcpy(out, text.data(), std::min(text.size(), size - 1));
}

template <size_t size>
bool same(std::string_view text, const char (&name)[size]) {
  const size_t length = std::min(text.size(), size - 1);
  return std::memcmp(name, text.data(), length) == 0 && name[length] == '\0';
}

bool number(Json& json, int64_t* out) {
  std::string_view bare;
  return json.bare(&bare) == Scan::kOk && to_int(bare, out);
}

bool flag(Json& json, bool* out) {
  std::string_view bare;
  if (json.bare(&bare) != Scan::kOk) return false;
  *out = bare == "true";
  return true;
}

// Calls `each` for every value of an array, with the scanner before it.
template <typename Each>
bool array(Json& json, const Each& each) {
  if (!json.take('[')) return false;
  while (!json.take(']')) {
    if (!each()) return false;
    if (!json.take(',') && json.peek() != ']') return false;
  }
  return true;
}

// Likewise for the keys of an object.
template <typename Each>
bool object(Json& json, const Each& each) {
  if (!json.take('{')) return false;
  while (!json.take('}')) {
    Text key;
    if (json.string(&key) != Scan::kOk || !json.take(':') || !each(key.raw)) return false;
    if (!json.take(',') && json.peek() != '}') return false;
  }
  return true;
}

// The id of the last record; one that cannot be read is taken for a newer one.
int64_t newest_in(std::string_view dump) {
  static constexpr std::string_view kKey = "\"record_id\":";
  const size_t at = dump.rfind(kKey);
  int64_t id = INT64_MAX;
  if (at == std::string_view::npos) return id;
  Json json(dump.data() + at + kKey.size(), dump.data() + dump.size());
  return number(json, &id) ? id : INT64_MAX;
}

}  // namespace

bool FlightRecorder::read(std::string_view dump) {
  Json json(dump.data(), dump.data() + dump.size());
  std::fill(std::begin(seen_), std::end(seen_), false);
  arrivals_.clear();
  last_ = -1;
  if (newest_in(dump) < newest_) newest_ = -1;  // the recorder was reset and counts anew
  const bool fine = object(json, [&](std::string_view key) {
    if (key != "entries") return json.skip_value() == Scan::kOk;
    return array(json, [&] { return entry(json); });
  });
  newest_ = std::max(newest_, last_);
  choose_arrivals();
  return fine;
}

bool FlightRecorder::entry(Json& json) {
  Record record;
  for (int side = 0; side < 2; ++side) elements_[side].clear(), element_bytes_[side].clear();
  const bool fine = object(json, [&](std::string_view key) {
    if (key == "record_id") return number(json, &record.id);
    if (key == "collective_seq_id") return number(json, &record.sequence);
    if (key == "time_created_ns") return number(json, &record.created_ns);
    if (key == "is_p2p") return flag(json, &record.is_p2p);
    if (key == "retired") return flag(json, &record.retired);
    if (key == "input_sizes") return sizes(json, &elements_[0]);
    if (key == "output_sizes") return sizes(json, &elements_[1]);
    if (key == "input_dtypes") return types(json, &element_bytes_[0]);
    if (key == "output_dtypes") return types(json, &element_bytes_[1]);
    if (key == "profiling_name") return text(json, &scratch_[0], &record.name);
    if (key == "state") return text(json, &scratch_[1], &record.state);
    if (key == "process_group") {  // its name and its description
      bool first = true;
      return array(json, [&] {
        if (!first) return json.skip_value() == Scan::kOk;
        first = false;
        return text(json, &scratch_[2], &record.group);
      });
    }
    if (key == "duration_ms") {
      std::string_view bare;
      int64_t thousandth = 0;  // `to_ns` takes microseconds: of milliseconds it gives microseconds
      if (json.bare(&bare) != Scan::kOk) return false;
      if (to_ns(bare, &thousandth) && thousandth >= 0) record.duration_ns = thousandth * 1000;
      return true;
    }
    return json.skip_value() == Scan::kOk;
  });
  if (!fine || record.id < 0) return false;
  add(record);
  last_ = record.id;
  return true;
}

bool FlightRecorder::text(Json& json, std::string* scratch, std::string_view* out) {
  Text token;
  if (json.string(&token) != Scan::kOk) return false;
  *out = plain(token, scratch);
  return true;
}

bool FlightRecorder::sizes(Json& json, std::vector<int64_t>* numbers_of_elements) {
  return array(json, [&] {
    int64_t elements = 1;
    const bool fine = array(json, [&] {
      int64_t size = 0;
      if (!number(json, &size)) return false;
      if (size < 0 || elements < 0 || __builtin_mul_overflow(elements, size, &elements)) elements = -1;
      return true;
    });
    numbers_of_elements->push_back(elements);
    return fine;
  });
}

bool FlightRecorder::types(Json& json, std::vector<int64_t>* bytes) {
  return array(json, [&] {
    Text token;
    if (json.string(&token) != Scan::kOk) return false;
    bytes->push_back(element_bytes(token.raw));
    return true;
  });
}

int64_t FlightRecorder::bytes() const {
  int64_t larger = 0;
  for (int side = 0; side < 2; ++side) {
    if (elements_[side].size() != element_bytes_[side].size()) return -1;
    int64_t sum = 0;
    for (size_t i = 0; i < elements_[side].size(); ++i) {
      int64_t product = 0;
      if (elements_[side][i] < 0 || element_bytes_[side][i] < 0 ||
          __builtin_mul_overflow(elements_[side][i], element_bytes_[side][i], &product) ||
          __builtin_add_overflow(sum, product, &sum)) {
        return -1;
      }
    }
    larger = std::max(larger, sum);
  }
  return larger;
}

uint64_t FlightRecorder::group_of(const Record& record, std::string_view backend) {
  char name[kGroupNameBytes];
  put_group_name(record.group, name);
  for (uint64_t slot = 0; slot < body_->groups; ++slot) {
    const RecordedGroup& group = body_->group[slot];
    if (std::memcmp(group.name, name, sizeof name) == 0 && same(backend, group.backend)) return slot;
  }
  if (body_->groups == kRecordedGroups) return kRecordedGroups;
  RecordedGroup& group = body_->group[body_->groups];
  std::memcpy(group.name, name, sizeof name);
  put(backend, group.backend);
  return body_->groups++;
}

uint64_t FlightRecorder::op_of(std::string_view op, uint64_t group) {
  for (uint64_t slot = 0; slot < body_->ops; ++slot) {
    if (body_->op[slot].group == group && same(op, body_->op[slot].name)) return slot;
  }
  if (body_->ops == kRecordedOps) return kRecordedOps;
  RecordedOp& added = body_->op[body_->ops];
  put(op, added.name);
  added.group = group;
  return body_->ops++;
}

void FlightRecorder::add(const Record& record) {
  const bool is_new = record.id > std::max(newest_, last_);
  // `gloo:all_reduce`; of NCCL's `nccl:send 0->1` the ranks are left away.
  const size_t colon = record.name.find(':');
  const std::string_view backend = colon == std::string_view::npos ? std::string_view() : record.name.substr(0, colon);
  const std::string_view whole = colon == std::string_view::npos ? record.name : record.name.substr(colon + 1);
  const uint64_t slot = group_of(record, backend);
  const uint64_t op = slot == kRecordedGroups ? kRecordedOps : op_of(whole.substr(0, whole.find(' ')), slot);
  const int64_t size = bytes();
  if (is_new) {
    ++body_->records_total;
    body_->missed_total += static_cast<uint64_t>(record.id - std::max(newest_, last_) - 1);
    if (op == kRecordedOps) ++body_->dropped_total;
    if (size < 0) ++body_->unsized_total;
  }
  if (slot == kRecordedGroups) return;
  if (is_new && op != kRecordedOps) {
    RecordedOp& sums = body_->op[op];
    ++sums.count_total;
    sums.bytes_total += static_cast<uint64_t>(std::max<int64_t>(size, 0));
    if (record.duration_ns >= 0) ++sums.timed_total, sums.time_ns_total += static_cast<uint64_t>(record.duration_ns);
  }
  if (record.is_p2p || record.sequence <= 0) return;
  const auto sequence = static_cast<uint64_t>(record.sequence);
  const auto created_ns = static_cast<uint64_t>(std::max<int64_t>(record.created_ns, 0));
  if (is_new) arrivals_.push_back({slot, sequence, created_ns});

  RecordedGroup& group = body_->group[slot];
  if (!seen_[slot]) {  // its state is that of this dump
    seen_[slot] = true;
    group.enqueued = group.started = group.completed = 0;
    group.open_op_plus_1 = group.open_bytes = group.open_real_ns = 0;
  }
  group.enqueued = sequence;
  // gloo's records are never `started` or `completed`: they retire when the work ends. NCCL's retire also at a timeout.
  const bool completed = record.state == "completed" || (backend != "nccl" && record.retired);
  if (completed || record.state == "started") group.started = backend == "nccl" ? sequence : 0;
  if (group.open_real_ns != 0) return;
  if (completed) {
    group.completed = sequence;
  } else {
    group.open_op_plus_1 = op == kRecordedOps ? 0 : op + 1;
    group.open_bytes = static_cast<uint64_t>(std::max<int64_t>(size, 0));
    group.open_real_ns = std::max<uint64_t>(created_ns, 1);
  }
}

// All ranks of a group begin the same collectives, but not all are read at the same moment: multiples of a power of two
// are chosen on each, and those of a larger one are among those of a smaller one.
void FlightRecorder::choose_arrivals() {
  uint64_t begun[kRecordedGroups] = {}, groups = 0, kept = 0;
  for (const Arrival& arrival : arrivals_) groups += begun[arrival.group]++ == 0;
  for (uint64_t i = 0; i < body_->arrivals; ++i) {  // of a group that began none meanwhile the old ones stay
    if (begun[body_->arrival[i].group] == 0) body_->arrival[kept++] = body_->arrival[i];
  }
  const uint64_t share = groups == 0 ? 0 : std::max<uint64_t>((kArrivals - kept) / groups, 1);
  for (const Arrival& arrival : arrivals_) {
    uint64_t stride = 1;
    while (begun[arrival.group] / stride >= share) stride *= 2;
    if (arrival.sequence % stride == 0 && kept < kArrivals) body_->arrival[kept++] = arrival;
  }
  body_->arrivals = kept;
}

}  // namespace pymon::trace
