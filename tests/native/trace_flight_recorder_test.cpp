// What a Flight Recorder's dump comes to; the texts are those of torch 2.13's gloo and NCCL recorders.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "core/group_name.h"
#include "trace/flight_recorder.h"

using namespace pymon;
using trace::FlightRecorder;

namespace {

struct Entry {
  int id;
  int sequence = 0;
  const char* name = "gloo:all_reduce";
  bool retired = true;
  const char* state = "scheduled";
  const char* group = "0";
  const char* more = "";
  const char* type = "Float";
};

std::string entry(const Entry& e) {
  const std::string id = std::to_string(e.id), sequence = std::to_string(e.sequence == 0 ? e.id + 1 : e.sequence);
  return "{\"collective_seq_id\":" + sequence + e.more + ",\"input_dtypes\":[\"" + e.type +
         "\"],\"input_sizes\":[[10,2]],\"is_p2p\":false,\"output_dtypes\":[\"" + e.type +
         "\"],\"output_sizes\":[[40]],\"p2p_seq_id\":0,\"process_group\":[\"" + e.group +
         "\",\"desc \\\"x\\\"\"],\"profiling_name\":\"" + e.name + "\",\"record_id\":" + id +
         ",\"retired\":" + (e.retired ? "true" : "false") + ",\"state\":\"" + e.state + "\",\"time_created_ns\":" +
         std::to_string(1000 + e.id) + ",\"timeout_ms\":1800000}";
}

std::string dump(std::initializer_list<Entry> entries) {
  std::string text = "{\"comm_lib_version\":\"\",\"entries\":[";
  for (const Entry& e : entries) text += (text.back() == '[' ? "" : ",") + entry(e);
  return text + "],\"pg_config\":{\"0\":{\"ranks\":\"[0, 1]\"}},\"version\":\"2.10\"}";
}

struct Reading {
  RecorderBody body{};
  FlightRecorder recorder{&body};
};

}  // namespace

TEST_CASE("counts, bytes and groups") {
  Reading r;
  CHECK(r.recorder.read(dump({{0}, {1}, {2, 1, "gloo:broadcast", true, "scheduled", "tensor"}})));
  CHECK(r.body.records_total == 3);
  CHECK(r.body.groups == 2);
  CHECK(r.body.ops == 2);
  CHECK(std::string(r.body.op[0].name) == "all_reduce");
  CHECK(r.body.op[0].count_total == 2);
  CHECK(r.body.op[0].bytes_total == 2 * 40 * 4);  // the output is larger
  CHECK(r.body.op[0].timed_total == 0);
  CHECK(std::string(r.body.group[1].name) == "tensor");
  CHECK(std::string(r.body.group[1].backend) == "gloo");
  CHECK(r.body.group[0].enqueued == 2);
  CHECK(r.body.group[0].completed == 2);
  CHECK(r.body.group[0].started == 0);  // gloo does not tell
}

TEST_CASE("a record is added once, and what was overwritten between two looks is missed") {
  Reading r;
  CHECK(r.recorder.read(dump({{0}, {1}})));
  CHECK(r.recorder.read(dump({{1}, {2}})));
  CHECK(r.body.records_total == 3);
  CHECK(r.body.missed_total == 0);
  CHECK(r.recorder.read(dump({{7}, {9}})));
  CHECK(r.body.records_total == 5);
  CHECK(r.body.missed_total == 5);
}

TEST_CASE("a recorder that was reset counts anew") {
  Reading r;
  CHECK(r.recorder.read(dump({{10}, {11}})));
  CHECK(r.recorder.read(dump({{0}, {1}})));
  CHECK(r.body.records_total == 4);
  CHECK(r.body.missed_total == 10);
}

TEST_CASE("where a rank stands: the oldest that has not ended") {
  Reading r;
  CHECK(r.recorder.read(dump({{0}, {1, 2, "gloo:all_gather", false}, {2, 3, "gloo:all_reduce", false}})));
  const RecordedGroup& group = r.body.group[0];
  CHECK(group.enqueued == 3);
  CHECK(group.completed == 1);
  CHECK(std::string(r.body.op[group.open_op_plus_1 - 1].name) == "all_gather");
  CHECK(group.open_real_ns == 1001);
  CHECK(group.open_bytes == 160);
  CHECK(r.recorder.read(dump({{0}, {1, 2, "gloo:all_gather"}, {2, 3}})));
  CHECK(group.completed == 3);
  CHECK(group.open_real_ns == 0);
  CHECK(r.body.records_total == 3);
}

TEST_CASE("NCCL: started, completed, a duration; one that retired without completing timed out") {
  Reading r;
  CHECK(r.recorder.read(dump({{0, 1, "nccl:all_reduce", true, "completed", "0", ",\"duration_ms\":1.5"},
                              {1, 2, "nccl:all_reduce", true, "started"},
                              {2, 3, "nccl:send 0->1", false}})));
  const RecordedGroup& group = r.body.group[0];
  CHECK(group.completed == 1);
  CHECK(group.started == 2);
  CHECK(group.enqueued == 3);
  CHECK(r.body.op[0].timed_total == 1);
  CHECK(r.body.op[0].time_ns_total == 1'500'000);
  CHECK(std::string(r.body.op[1].name) == "send");
}

TEST_CASE("arrivals are multiples of a power of two, as many as there is room for, and stay until there are newer ones") {
  Reading r;
  std::string text = "{\"entries\":[";
  for (int id = 0; id < 2000; ++id) text += (id ? "," : "") + entry({id, 0, "gloo:all_reduce", true, "scheduled"});
  CHECK(r.recorder.read(text + "]}"));
  CHECK(r.body.arrivals > kArrivals / 4);
  CHECK(r.body.arrivals <= kArrivals);
  const uint64_t before = r.body.arrivals;
  for (uint64_t i = 0; i < before; ++i) {
    CHECK(r.body.arrival[i].sequence % 32 == 0);
    CHECK(r.body.arrival[i].real_ns == 1000 + r.body.arrival[i].sequence - 1);
  }
  CHECK(r.recorder.read(text + "]}"));
  CHECK(r.body.arrivals == before);
}

TEST_CASE("tables that are full drop and count") {
  Reading r;
  std::vector<std::string> names(200);
  for (int i = 0; i < 200; ++i) {
    names[i] = "group" + std::to_string(i);
    CHECK(r.recorder.read(dump({{i, 1, "gloo:barrier", true, "scheduled", names[i].c_str()}})));
  }
  CHECK(r.body.groups == kRecordedGroups);
  CHECK(r.body.dropped_total == 200 - kRecordedGroups);
}

TEST_CASE("a type without a known size is counted, not guessed") {
  Reading r;
  CHECK(r.recorder.read(dump({{0, 1, "gloo:all_reduce", true, "scheduled", "0", "", "Quux"}})));
  CHECK(r.body.unsized_total == 1);
  CHECK(r.body.op[0].count_total == 1);
  CHECK(r.body.op[0].bytes_total == 0);
}

TEST_CASE("text that is no dump is refused, wherever it ends") {
  const std::string whole = dump({{0}, {1}, {2}});
  for (size_t size = 0; size < whole.size(); ++size) {
    Reading r;
    CHECK_FALSE(r.recorder.read(whole.substr(0, size)));
    CHECK(r.body.records_total <= 3);
  }
  for (const char* wrong : {"", "[]", "null", "{\"entries\":[{}]}", "{\"entries\":[{\"record_id\":\"x\"}]}"}) {
    Reading r;
    CHECK_FALSE(r.recorder.read(wrong));
  }
}

TEST_CASE("long group names that begin alike stay apart, whole characters only") {
  char one[kGroupNameBytes], other[kGroupNameBytes], again[kGroupNameBytes];
  const std::string base(40, 'a');
  put_group_name(base + "1", one);
  put_group_name(base + "2", other);
  put_group_name(base + "1", again);
  CHECK(std::memcmp(one, other, sizeof one) != 0);
  CHECK(std::memcmp(one, again, sizeof one) == 0);
  CHECK(std::strlen(one) == kGroupNameBytes - 1);
  put_group_name("short", one);
  CHECK(std::string(one) == "short");
  put_group_name(std::string(21, 'a') + "\xc3\xa9" + base, one);
  CHECK(std::string(one).substr(0, 22) == std::string(21, 'a') + "~");
}
