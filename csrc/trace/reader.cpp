#include "trace/reader.h"

#include <algorithm>
#include <cstring>

#include "trace/frames.h"

namespace pymon::trace {
namespace {

constexpr int64_t kLongestNs = 24ll * 3600 * 1000 * 1000 * 1000;  // no event of a capture lasts a day

bool starts_event(const char* at, const char* end) {
  Json json(at, end);
  if (!json.take('{')) return false;
  Text key;
  if (json.string(&key) != Scan::kOk) return false;
  static constexpr std::string_view kFirst[] = {"ph", "name", "cat", "args", "pid", "ts"};
  return std::find(std::begin(kFirst), std::end(kFirst), key.raw) != std::end(kFirst);
}

bool kind_of(std::string_view cat, Kind* kind) {
  struct Entry {
    std::string_view cat;
    Kind kind;
  };
  static constexpr Entry kEntries[] = {
      {"python_function", Kind::kPython}, {"cpu_op", Kind::kOp},           {"cuda_runtime", Kind::kRuntime},
      {"kernel", Kind::kKernel},          {"Operator", Kind::kOp},         {"Runtime", Kind::kRuntime},
      {"Kernel", Kind::kKernel},          {"gpu_memcpy", Kind::kCopy},     {"gpu_memset", Kind::kSet},
      {"Memcpy", Kind::kCopy},            {"Memset", Kind::kSet},          {"user_annotation", Kind::kAnnotation},
      {"cuda_driver", Kind::kRuntime},    {"overhead", Kind::kOverhead},   {"xpu_runtime", Kind::kRuntime},
      {"mtia_runtime", Kind::kRuntime},   {"privateuse1_runtime", Kind::kRuntime},
  };
  for (const Entry& entry : kEntries) {
    if (entry.cat == cat) {
      *kind = entry.kind;
      return true;
    }
  }
  return false;
}

// A string or a bare value, as text.
Scan scalar(Json* json, std::string_view* out) {
  if (json->peek() == '"') {
    Text text;
    const Scan scan = json->string(&text);
    *out = text.raw;
    return scan;
  }
  return json->bare(out);
}

int32_t small(std::string_view text) {
  int64_t value = -1;
  return to_int(text, &value) && value >= INT32_MIN && value <= INT32_MAX ? static_cast<int32_t>(value) : -1;
}

int64_t integer_or_none(std::string_view text) {
  int64_t value = -1;
  return to_int(text, &value) ? value : -1;
}

// The value of a key in an object's text; empty where it lacks. For the few small objects of the head.
std::string_view value_of(std::string_view object, std::string_view wanted) {
  Json json(object.data(), object.data() + object.size());
  if (!json.take('{')) return {};
  while (json.peek() == '"') {
    Text key;
    if (json.string(&key) != Scan::kOk || !json.take(':')) return {};
    json.skip_space();
    const char* begin = json.at();
    if (json.skip_value() != Scan::kOk) return {};
    if (key.raw == wanted) return {begin, static_cast<size_t>(json.at() - begin)};
    json.take(',');
  }
  return {};
}

std::string unquoted(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return {};
  std::string scratch;
  return std::string(plain({text.substr(1, text.size() - 2), true}, &scratch).substr(0, 512));
}

}  // namespace

Reader::Reader(const Limits& limits) : limits_(limits), names_(limits.max_names_bytes) {}

void Reader::feed(const char* bytes, size_t size) {
  if (finished_ || size == 0) return;
  bytes_total_ += size;
  pending_.append(bytes, size);
  if (pending_.size() >= retry_at_bytes_) run(false);
}

void Reader::finish() {
  if (finished_) return;
  run(true);
  finished_ = true;
  if (state_ == State::kStart || state_ == State::kRoot || state_ == State::kLost) defects_.no_events_array = true;
  if (state_ == State::kEvents) defects_.truncated = true;
  pending_.clear();
  pending_.shrink_to_fit();
}

void Reader::run(bool last) {
  const char* const begin = pending_.data();
  const char* const end = begin + pending_.size();
  Json json(begin, end);
  const char* done = begin;  // what lies before is used up
  Scan scan = Scan::kOk;
  while (scan == Scan::kOk) {
    done = json.at();
    switch (state_) {
      case State::kStart: scan = start(&json); break;
      case State::kRoot:
      case State::kAfterArray: scan = root(&json); break;
      case State::kEvents: scan = next_event(&json); break;
      case State::kLost: scan = find_events_array(&json, end) ? Scan::kOk : Scan::kMore; break;
    }
    if (scan == Scan::kOk || state_ == State::kLost) continue;
    const bool too_long = static_cast<size_t>(end - done) > limits_.max_event_bytes;
    const bool cut_off = last && (state_ == State::kEvents || state_ == State::kRoot);
    if (scan == Scan::kMore && !too_long && !cut_off) continue;
    if (state_ == State::kAfterArray) {  // a broken tail costs only itself
      ++defects_.unreadable_total;
      defects_.unreadable_bytes += static_cast<uint64_t>(end - done);
      done = end;
      break;
    }
    if (state_ != State::kEvents) {
      state_ = State::kLost;
      json.move_to(done);
      scan = Scan::kOk;
      continue;
    }
    const char* next = resync(done, end, last);
    if (next == done) {
      scan = Scan::kMore;
      break;
    }
    json.move_to(next);
    done = next;
    scan = next == end ? Scan::kMore : Scan::kOk;
  }
  if (state_ == State::kLost && end - done > 32) done = end - 32;  // enough for a key that is cut in two
  pending_.erase(0, static_cast<size_t>(done - begin));
  retry_at_bytes_ = last ? 0 : pending_.size() + pending_.size() / 4;
}

Scan Reader::start(Json* json) {
  if (pending_.compare(0, 3, "\xef\xbb\xbf") == 0) json->move_to(json->at() + 3);
  const char first = json->peek();
  if (first == '\0') return Scan::kMore;
  if (first == '{') {
    json->take('{');
    state_ = State::kRoot;
    return Scan::kOk;
  }
  if (first == '[') {
    json->take('[');
    about_.array_root = true;
    state_ = State::kEvents;
    return Scan::kOk;
  }
  return Scan::kBad;
}

Scan Reader::root(Json* json) {
  while (json->take(',')) {
  }
  const char next = json->peek();
  if (next == '\0' || next == '}' || next == ']') return Scan::kMore;  // the end of the file, or more to come
  Text key;
  const Scan scan = json->string(&key);
  if (scan != Scan::kOk) return scan;
  const char colon = json->peek();
  if (colon != ':') return colon == '\0' ? Scan::kMore : Scan::kBad;
  json->take(':');
  if (key.raw == "traceEvents" && state_ == State::kRoot) {
    const char open = json->peek();
    if (open != '[') return open == '\0' ? Scan::kMore : Scan::kBad;
    json->take('[');
    state_ = State::kEvents;
    return Scan::kOk;
  }
  return root_value(json, key.raw);
}

Scan Reader::root_value(Json* json, std::string_view key) {
  json->skip_space();
  const char* begin = json->at();
  const Scan scan = json->skip_value();
  if (scan != Scan::kOk) return scan;
  const std::string_view value(begin, static_cast<size_t>(json->at() - begin));
  if (key == "distributedInfo") {
    about_.has_rank = to_int(value_of(value, "rank"), &about_.rank);
    about_.has_world_size = to_int(value_of(value, "world_size"), &about_.world_size);
  } else if (key == "baseTimeNanoseconds") {
    about_.has_base_time = to_int(value, &about_.base_time_ns);
  } else if (key == "traceName") {
    about_.trace_name = unquoted(value);
  } else if (key == "host_name") {
    about_.host_name = unquoted(value);
  } else if (key == "deviceProperties") {
    Json list(value.data(), value.data() + value.size());
    if (list.take('[') && list.peek() == '{') {
      const size_t offset = static_cast<size_t>(list.at() - value.data());
      about_.gpu_name = unquoted(value_of(value.substr(offset), "name"));
    }
  }
  return Scan::kOk;
}

Scan Reader::next_event(Json* json) {
  while (json->take(',')) {
  }
  const char next = json->peek();
  if (next == '\0') return Scan::kMore;
  if (next == ']') {
    json->take(']');
    state_ = State::kAfterArray;
    return Scan::kOk;
  }
  Raw raw;
  const Scan scan = parse_event(json, &raw);
  if (scan == Scan::kOk) keep(raw);
  return scan;
}

Scan Reader::parse_event(Json* json, Raw* raw) {
  if (!json->take('{')) return Scan::kBad;
  while (true) {
    while (json->take(',')) {
    }
    if (json->take('}')) return Scan::kOk;
    Text key;
    Scan scan = json->string(&key);
    if (scan != Scan::kOk) return scan;
    const char colon = json->peek();
    if (colon != ':') return colon == '\0' ? Scan::kMore : Scan::kBad;
    json->take(':');
    const std::string_view k = key.raw;
    if (k == "name" && json->peek() == '"') scan = json->string(&raw->name);
    else if (k == "cat" && json->peek() == '"') scan = json->string(&raw->cat);
    else if (k == "ph" && json->peek() == '"') scan = json->string(&raw->ph);
    else if (k == "ts") { scan = scalar(json, &raw->ts); raw->has_ts = true; }
    else if (k == "dur") { scan = scalar(json, &raw->dur); raw->has_dur = true; }
    else if (k == "pid") scan = scalar(json, &raw->pid);
    else if (k == "tid") scan = scalar(json, &raw->tid);
    else if (k == "args" && json->peek() == '{') scan = parse_args(json, raw);
    else scan = json->skip_value();
    if (scan != Scan::kOk) return scan;
    const char after = json->peek();
    if (after != ',' && after != '}') return after == '\0' ? Scan::kMore : Scan::kBad;
  }
}

Scan Reader::parse_args(Json* json, Raw* raw) {
  json->take('{');
  while (true) {
    while (json->take(',')) {
    }
    if (json->take('}')) return Scan::kOk;
    Text key;
    Scan scan = json->string(&key);
    if (scan != Scan::kOk) return scan;
    const char colon = json->peek();
    if (colon != ':') return colon == '\0' ? Scan::kMore : Scan::kBad;
    json->take(':');
    const std::string_view k = key.raw;
    const char value = json->peek();
    const bool simple = value != '{' && value != '[';
    if (k == "correlation" && simple) scan = scalar(json, &raw->correlation);
    else if (k == "stream" && simple) scan = scalar(json, &raw->stream);
    else if (k == "device" && simple) scan = scalar(json, &raw->device);
    else if (k == "bytes" && simple) scan = scalar(json, &raw->bytes);
    else if (k == "Rank" && simple) scan = scalar(json, &raw->rank);
    else if (k == "Call stack" && value == '"') scan = json->string(&raw->stack);
    else scan = json->skip_value();
    if (scan != Scan::kOk) return scan;
    const char after = json->peek();
    if (after != ',' && after != '}') return after == '\0' ? Scan::kMore : Scan::kBad;
  }
}

void Reader::keep(const Raw& raw) {
  ++events_total_;
  Kind kind;
  if (raw.ph.raw != "X" || !kind_of(raw.cat.raw, &kind)) return;
  int64_t ts = 0;
  int64_t dur = 0;
  if (!raw.has_ts || !raw.has_dur || !to_ns(raw.ts, &ts) || !to_ns(raw.dur, &dur) || ts < 0 || dur < 0 ||
      dur > kLongestNs || ts > INT64_MAX - kLongestNs) {
    ++defects_.bad_values_total;
    return;
  }
  if (is_gpu(kind) && ts == 0) {
    ++defects_.zero_stamps_total;
    return;
  }
  if (host_.size() + gpu_.size() >= limits_.max_events) {
    ++defects_.over_limit_total;
    return;
  }
  const int64_t correlation = integer_or_none(raw.correlation);
  const uint32_t name = intern(raw.name);
  if (is_gpu(kind)) {
    gpu_.push_back({ts, dur, correlation, integer_or_none(raw.bytes), name, small(raw.device), small(raw.stream), kind});
    return;
  }
  if (!about_.has_rank && !raw.rank.empty()) about_.has_rank = to_int(raw.rank, &about_.rank);
  uint32_t stack = Names::kEmpty;
  if (!raw.stack.raw.empty() && reads_scalar(names_.at(name))) {
    stack = names_.intern(user_frame_of_call_stack(plain(raw.stack, &scratch_)));
  }
  host_.push_back({ts, dur, correlation, name, stack, thread(raw.pid, raw.tid), kind});
}

// Where the next event plainly begins after `from`; `from` itself where more bytes are needed to tell.
const char* Reader::resync(const char* from, const char* end, bool last) {
  for (const char* at = from + 1; at < end; ++at) {
    at = static_cast<const char*>(std::memchr(at, '{', static_cast<size_t>(end - at)));
    if (at == nullptr) break;
    const char* before = at - 1;  // ... } , {  : the end of one event and the start of the next
    while (before > from && (*before == ' ' || *before == '\n' || *before == '\r' || *before == '\t')) --before;
    if (*before == ',' && before > from) {
      --before;
      while (before > from && (*before == ' ' || *before == '\n' || *before == '\r' || *before == '\t')) --before;
    }
    if (*before != '}' || !starts_event(at, end)) continue;
    ++defects_.unreadable_total;
    defects_.unreadable_bytes += static_cast<uint64_t>(at - from);
    return at;
  }
  const size_t left = static_cast<size_t>(end - from);
  if (!last && left <= limits_.max_event_bytes) return from;
  if (left > 0) {
    ++defects_.unreadable_total;
    defects_.unreadable_bytes += left;
  }
  return end;
}

bool Reader::find_events_array(Json* json, const char* end) {
  static constexpr std::string_view kKey = "\"traceEvents\"";
  const char* at = std::search(json->at(), end, kKey.begin(), kKey.end());
  if (at == end) return false;
  Json ahead(at + kKey.size(), end);
  if (!ahead.take(':') || !ahead.take('[')) return false;
  json->move_to(ahead.at());
  ++defects_.unreadable_total;
  state_ = State::kEvents;
  return true;
}

uint32_t Reader::intern(const Text& text) {
  std::string_view name = plain(text, &scratch_);
  if (name.size() > limits_.max_name_bytes) {
    ++defects_.cut_names_total;
    name = name.substr(0, limits_.max_name_bytes);
  }
  return names_.intern(name);
}

uint32_t Reader::thread(std::string_view pid, std::string_view tid) {
  if (last_thread_key_.size() == pid.size() + tid.size() + 1 && last_thread_key_.compare(0, pid.size(), pid) == 0 &&
      last_thread_key_.compare(pid.size() + 1, tid.size(), tid) == 0) {
    return last_thread_;
  }
  last_thread_key_.assign(pid).append("/").append(tid);
  const auto found = threads_.find(last_thread_key_);
  if (found != threads_.end()) return last_thread_ = found->second;
  last_thread_ = static_cast<uint32_t>(threads_.size());
  if (threads_.size() < 65536) threads_.emplace(last_thread_key_.substr(0, 256), last_thread_);
  return last_thread_;
}

}  // namespace pymon::trace
