// Which names matter, and which Python frames are the user's.
#pragma once

#include <string_view>

namespace pymon::trace {

// aten::item and its kin: each reads a value out of a tensor into Python.
bool reads_scalar(std::string_view name);

// cudaStreamSynchronize and its kin.
bool waits_for_gpu(std::string_view name);

// Kernels that move data between ranks, by name (docs/facts.md).
bool is_communication(std::string_view kernel);

// `file.py(12): function` of the user's own code: not PyTorch's, not a library's, not a built-in.
bool is_user_frame(std::string_view frame);

// The innermost frame of the user in `a.py(3): f;b.py(9): g;...`, the innermost standing first; empty where there is none.
std::string_view user_frame_of_call_stack(std::string_view stack);

}  // namespace pymon::trace
