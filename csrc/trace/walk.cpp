#include "trace/walk.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "trace/frames.h"

namespace pymon::trace {
namespace {

constexpr int64_t kScalarBytes = 64;  // docs/facts.md, "scalar read": no tensor is that small
constexpr size_t kTopOps = 20;
constexpr size_t kTopSites = 50;
constexpr size_t kMaxDepth = 4096;  // no program nests deeper; bounds what a hostile file can ask for

bool starts(std::string_view text, std::string_view part) { return text.substr(0, part.size()) == part; }

class Walk {
 public:
  Walk(const Reader& reader, const Links& links, const Blocking& blocking, const Intervals& window)
      : reader_(reader), links_(links), blocking_(blocking), window_(window),
        traits_(reader.names().size()), self_ns_(reader.names().size()), calls_(reader.names().size()) {
    for (uint32_t name = 0; name < reader.names().size(); ++name) {
      const std::string_view text = reader.names().at(name);
      traits_[name] = static_cast<uint8_t>((reads_scalar(text) ? kReads : 0) | (is_user_frame(text) ? kUser : 0) |
                                           (starts(text, "ProfilerStep#") ? kStep : 0));
    }
  }

  void run() {
    std::vector<uint32_t> order;
    const auto& host = reader_.host();
    order.reserve(host.size());
    for (uint32_t i = 0; i < host.size(); ++i) {
      if (host[i].kind != Kind::kOverhead) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&host](uint32_t a, uint32_t b) {
      const HostEvent &x = host[a], &y = host[b];
      if (x.thread != y.thread) return x.thread < y.thread;
      if (x.ts_ns != y.ts_ns) return x.ts_ns < y.ts_ns;
      return x.dur_ns != y.dur_ns ? x.dur_ns > y.dur_ns : rank(x.kind) < rank(y.kind);
    });
    uint32_t thread = 0;
    for (uint32_t i : order) {
      const HostEvent& event = host[i];
      if (event.thread != thread) stack_.clear();
      thread = event.thread;
      while (!stack_.empty() && is_over(host[stack_.back()], event.ts_ns)) stack_.pop_back();
      enter(i, event);
      if (stack_.size() < kMaxDepth) stack_.push_back(i);
    }
  }

  void give(Sums* out) {
    out->op_ns = total_ns(intersection(united(std::move(op_spans_)), window_));
    out->reads = reads_;
    out->reads.ns = total_ns(intersection(united(std::move(read_spans_)), window_));
    for (uint32_t name = 0; name < calls_.size(); ++name) {
      if (calls_[name] > 0) out->top_ops.push_back({name, calls_[name], self_ns_[name]});
    }
    std::sort(out->top_ops.begin(), out->top_ops.end(), [](const Named& a, const Named& b) { return a.ns > b.ns; });
    if (out->top_ops.size() > kTopOps) out->top_ops.resize(kTopOps);
    for (const auto& entry : blocking_by_name_) out->blocking.push_back(entry.second);
    std::sort(out->blocking.begin(), out->blocking.end(), [](const Named& a, const Named& b) { return a.ns > b.ns; });
    for (const auto& entry : sites_) out->sites.push_back(entry.second);
    std::sort(out->sites.begin(), out->sites.end(), [](const Site& a, const Site& b) { return a.ns > b.ns; });
    if (out->sites.size() > kTopSites) out->sites.resize(kTopSites);
  }

 private:
  enum Trait : uint8_t { kReads = 1, kUser = 2, kStep = 4 };

  // Of events with the same span, the outer kind first.
  static int rank(Kind kind) {
    return kind == Kind::kPython ? 0 : kind == Kind::kAnnotation ? 1 : kind == Kind::kOp ? 2 : 3;
  }

  // Ranges of one thread may overlap without nesting (a step that opens inside Optimizer.step), so that a range which
  // is over may still stand below one that is not. Stamps of old traces are whole microseconds: an event of length 0
  // still holds what starts in the same microsecond.
  static bool is_over(const HostEvent& event, int64_t now_ns) {
    return event.end_ns() < now_ns || (event.end_ns() == now_ns && event.ts_ns < now_ns);
  }

  bool has(uint32_t name, Trait trait) const { return (traits_[name] & trait) != 0; }

  void enter(uint32_t i, const HostEvent& event) {
    const int64_t inside = within_ns(window_, event.ts_ns, event.end_ns());
    if (inside == 0 && within_ns(window_, event.ts_ns, event.ts_ns + 1) == 0) return;
    if (event.kind == Kind::kOp && !has(event.name, kStep)) enter_op(event, inside);
    if (event.kind == Kind::kOp && has(event.name, kReads)) enter_read(event, inside);
    if (event.kind == Kind::kRuntime && blocking_.is[i]) enter_blocking(event, inside);
    if (event.kind == Kind::kRuntime) enter_copy(event);
  }

  void enter_op(const HostEvent& event, int64_t inside) {
    add(&self_ns_[event.name], inside);
    ++calls_[event.name];
    bool outermost = true;
    for (auto at = stack_.rbegin(); at != stack_.rend(); ++at) {
      const HostEvent& outer = reader_.host()[*at];
      if (outer.kind != Kind::kOp || has(outer.name, kStep) || is_over(outer, event.ts_ns)) continue;
      self_ns_[outer.name] -= std::min(inside, within_ns(window_, outer.ts_ns, outer.end_ns()));
      outermost = false;
      break;
    }
    if (outermost) op_spans_.push_back({event.ts_ns, event.end_ns()});
  }

  bool inside_read(int64_t now_ns) const {
    return std::any_of(stack_.begin(), stack_.end(), [this, now_ns](uint32_t at) {
      const HostEvent& outer = reader_.host()[at];
      return outer.kind == Kind::kOp && has(outer.name, kReads) && !is_over(outer, now_ns);
    });
  }

  void enter_read(const HostEvent& event, int64_t inside) {
    if (inside_read(event.ts_ns)) return;
    ++reads_.calls_total;
    last_copy_counted_ = false;
    read_spans_.push_back({event.ts_ns, event.end_ns()});
    add_site(event, inside);
  }

  void enter_blocking(const HostEvent& event, int64_t inside) {
    Named& sum = blocking_by_name_.try_emplace(event.name, Named{event.name, 0, 0}).first->second;
    ++sum.calls_total;
    add(&sum.ns, inside);
    if (!inside_read(event.ts_ns)) add_site(event, inside);
  }

  // A copy of a few bytes to the host below a scalar read makes that read a wait for the GPU.
  void enter_copy(const HostEvent& event) {
    if (last_copy_counted_ || event.correlation < 0) return;
    const int64_t at = links_.gpu_of(event.correlation);
    if (at < 0) return;
    const GpuEvent& copy = reader_.gpu()[static_cast<size_t>(at)];
    if (copy.kind != Kind::kCopy || copy.bytes > kScalarBytes) return;
    if (!copies_to_host(reader_.names().at(copy.name)) || !inside_read(event.ts_ns)) return;
    ++reads_.with_copy_total;
    last_copy_counted_ = true;
  }

  void add_site(const HostEvent& event, int64_t ns) {
    uint32_t frame = event.stack;
    bool is_frame = frame != Names::kEmpty;
    for (auto at = stack_.rbegin(); at != stack_.rend() && !is_frame; ++at) {
      const HostEvent& outer = reader_.host()[*at];
      if (is_over(outer, event.ts_ns)) continue;
      if (outer.kind == Kind::kPython && has(outer.name, kUser)) {
        frame = outer.name;
        is_frame = true;
      } else if (outer.kind == Kind::kAnnotation && frame == Names::kEmpty && !has(outer.name, kStep)) {
        frame = outer.name;
      }
    }
    if (frame == Names::kEmpty) return;
    const auto key = std::make_tuple(frame, event.name);
    if (sites_.size() >= kMaxSites && sites_.find(key) == sites_.end()) return;
    Site& site = sites_.try_emplace(key, Site{frame, event.name, is_frame, 0, 0}).first->second;
    ++site.calls_total;
    add(&site.ns, ns);
  }

  static constexpr size_t kMaxSites = 10000;

  const Reader& reader_;
  const Links& links_;
  const Blocking& blocking_;
  const Intervals& window_;
  std::vector<uint8_t> traits_;
  std::vector<int64_t> self_ns_;
  std::vector<uint64_t> calls_;
  std::vector<uint32_t> stack_;
  Intervals op_spans_, read_spans_;
  ScalarReads reads_;
  bool last_copy_counted_ = false;
  std::map<uint32_t, Named> blocking_by_name_;
  std::map<std::tuple<uint32_t, uint32_t>, Site> sites_;
};

}  // namespace

void walk_host(const Reader& reader, const Links& links, const Blocking& blocking, const Intervals& window, Sums* out) {
  Walk walk(reader, links, blocking, window);
  walk.run();
  walk.give(out);
}

}  // namespace pymon::trace
