// The reader on whole, broken and cut traces; the sums by hand.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "trace/frames.h"
#include "trace/intervals.h"
#include "trace/json.h"
#include "trace/reader.h"
#include "trace/sums.h"

using namespace pymon::trace;

namespace {

std::string event(const std::string& name, const std::string& cat, const std::string& ts, const std::string& dur,
                  const std::string& args = "{}") {
  return "{\"ph\": \"X\", \"cat\": \"" + cat + "\", \"name\": \"" + name + "\", \"pid\": 1, \"tid\": 2, \"ts\": " + ts +
         ", \"dur\": " + dur + ", \"args\": " + args + "}";
}

std::string small_trace() {
  return "{\"schemaVersion\": 1, \"distributedInfo\": {\"rank\": 4}, \"traceEvents\": [\n" +
         event("ProfilerStep#1", "user_annotation", "1000", "100") + ",\n" +
         event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", "1000", "40") + ",\n" +
         event("cudaLaunchKernel", "cuda_runtime", "1042.5", "2", "{\"correlation\": 7}") + ",\n" +
         event("gemm", "kernel", "1050", "50.000", "{\"correlation\": 7, \"stream\": 7, \"device\": 0}") +
         "\n], \"traceName\": \"x\"}";
}

Reader read(const std::string& text, size_t piece = SIZE_MAX, const Limits& limits = Limits()) {
  Reader reader(limits);
  for (size_t at = 0; at < text.size(); at += std::min(piece, text.size() - at)) {
    reader.feed(text.data() + at, std::min(piece, text.size() - at));
  }
  reader.finish();
  return reader;
}

}  // namespace

TEST_CASE("pieces of any size give the same events") {
  for (size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{64}, SIZE_MAX}) {
    const Reader reader = read(small_trace(), piece);
    CHECK(reader.events_total() == 4);
    CHECK(reader.about().rank == 4);
    CHECK(reader.about().trace_name == "x");
    CHECK_FALSE(reader.defects().truncated);
    CHECK(reader.defects().unreadable_total == 0);
    const Sums sums = sum_up(reader);
    REQUIRE(sums.gpu.has_value());
    CHECK(sums.window_ns == 100000);
    CHECK(sums.gpu->compute_ns == 50000);
    CHECK(sums.gpu->idle_by_data_ns == 40000);
    CHECK(sums.gpu->idle_by_host_ns == 10000);
    CHECK(sums.loader.single_total == 1);
  }
}

TEST_CASE("cut at any byte: whole events stay, nothing crashes") {
  const std::string whole = small_trace();
  for (size_t size = 0; size < whole.size(); ++size) {
    const Reader reader = read(whole.substr(0, size));
    CHECK(reader.events_total() <= 4);
    CHECK(reader.defects().truncated + reader.defects().no_events_array == (size <= whole.rfind(']')));
    sum_up(reader);
  }
}

TEST_CASE("any byte changed: nothing crashes") {
  std::mt19937 random(20261201);
  const std::string whole = small_trace();
  for (int round = 0; round < 5000; ++round) {
    std::string text = whole;
    for (int hits = 0; hits < 3; ++hits) text[random() % text.size()] = static_cast<char>(random());
    sum_up(read(text, 1 + random() % 200), random() % 3);
  }
}

TEST_CASE("limits hold and are counted") {
  Limits limits;
  limits.max_events = 2;
  CHECK(read(small_trace(), SIZE_MAX, limits).defects().over_limit_total == 2);

  limits = Limits();
  limits.max_names_bytes = 1;
  CHECK(read(small_trace(), SIZE_MAX, limits).names().refused_total() > 0);

  limits = Limits();
  limits.max_event_bytes = 1000;
  std::string text = "[" + event(std::string(100000, 'x'), "cpu_op", "1", "1") + "," + event("b", "cpu_op", "2", "1") + "]";
  const Reader reader = read(text, 100, limits);
  CHECK(reader.events_total() == 1);
  CHECK(reader.defects().unreadable_total > 0);
}

TEST_CASE("microseconds become nanoseconds exactly") {
  int64_t ns = 0;
  CHECK((to_ns("1661203462598772", &ns) && ns == 1661203462598772000));
  CHECK((to_ns("1.001", &ns) && ns == 1001));
  CHECK((to_ns("0.5", &ns) && ns == 500));
  CHECK((to_ns("1e3", &ns) && ns == 1000000));
  CHECK((to_ns("-2.25", &ns) && ns == -2250));
  CHECK_FALSE(to_ns("NaN", &ns));
  CHECK_FALSE(to_ns("99999999999999999999", &ns));
  CHECK_FALSE(to_ns("", &ns));
}

TEST_CASE("intervals") {
  const Intervals a = united({{5, 7}, {1, 3}, {2, 4}, {9, 9}});
  REQUIRE(a.size() == 2);
  CHECK(total_ns(a) == 5);
  CHECK(total_ns(difference({{0, 10}}, a)) == 5);
  CHECK(total_ns(intersection(a, {{3, 6}})) == 2);
  CHECK(within_ns(a, 3, 6) == 2);
}

TEST_CASE("names") {
  CHECK(is_communication("ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
  CHECK(is_communication("void deep_ep::intranode::dispatch<4>"));
  CHECK_FALSE(is_communication("sm80_xmma_gemm_f16"));
  CHECK(is_user_frame("train.py(12): step"));
  CHECK_FALSE(is_user_frame("torch/nn/modules/module.py(1500): forward"));
  CHECK_FALSE(is_user_frame("<built-in method item of Tensor object at 0x1>"));
  CHECK(user_frame_of_call_stack("/a/lib/python3.9/site-packages/x.py(1): f;train.py(3): g") == "train.py(3): g");
}
