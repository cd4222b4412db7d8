#include "trace/frames.h"

#include <algorithm>
#include <string>

namespace pymon::trace {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool starts(std::string_view text, std::string_view part) { return text.substr(0, part.size()) == part; }

bool ends(std::string_view text, std::string_view part) {
  return text.size() >= part.size() && text.substr(text.size() - part.size()) == part;
}

template <size_t N>
bool any_in(std::string_view text, const std::string_view (&parts)[N]) {
  return std::any_of(std::begin(parts), std::end(parts), [&](std::string_view part) { return contains(text, part); });
}

}  // namespace

bool reads_scalar(std::string_view name) {
  return name == "aten::item" || name == "aten::_local_scalar_dense" || name == "aten::nonzero" ||
         name == "aten::is_nonzero";
}

bool waits_for_gpu(std::string_view name) {
  if (!starts(name, "cuda") && !starts(name, "hip") && !starts(name, "cu")) return false;
  return ends(name, "StreamSynchronize") || ends(name, "DeviceSynchronize") || ends(name, "EventSynchronize") ||
         ends(name, "CtxSynchronize");
}

bool is_communication(std::string_view kernel) {
  std::string low(kernel);
  std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  static constexpr std::string_view kParts[] = {
      "nccl",         "rccl",        "ep::internode::", "ep::intranode::", "deep_ep",        "deepep",
      "nvshmem",      "allreduce",   "all_reduce",      "allgather",       "all_gather",     "reducescatter",
      "reduce_scatter", "alltoall",     "all_toall",       "allto_all",      "all_to_all",
      "cross_device_reduce", "multimem", "symm_mem",     "sendrecv",
  };
  return starts(low, "hccl") || any_in(low, kParts);
}

bool is_user_frame(std::string_view frame) {
  if (!contains(frame, "): ") || starts(frame, "nn.Module:")) return false;
  static constexpr std::string_view kForeign[] = {"site-packages/", "dist-packages/", "<built-in", "<frozen",
                                                  "<string>",       "/torch/",        "lib/python3", "pymon/probe/"};
  if (starts(frame, "torch/") || starts(frame, "<")) return false;
  if (any_in(frame, kForeign)) return false;
  // Modules of the standard library are named without a folder once the path is stripped.
  static constexpr std::string_view kStandard[] = {"threading.py(", "contextlib.py(", "runpy.py(",   "logging/",
                                                   "multiprocessing/", "concurrent/", "queue.py(", "selectors.py("};
  return !std::any_of(std::begin(kStandard), std::end(kStandard),
                      [&](std::string_view part) { return starts(frame, part); });
}

std::string_view user_frame_of_call_stack(std::string_view stack) {
  while (!stack.empty()) {
    const size_t cut = stack.find(';');
    std::string_view frame = stack.substr(0, cut);
    while (!frame.empty() && (frame.front() == ' ' || frame.front() == '\n')) frame.remove_prefix(1);
    if (is_user_frame(frame)) return frame;
    if (cut == std::string_view::npos) break;
    stack.remove_prefix(cut + 1);
  }
  return {};
}

}  // namespace pymon::trace
