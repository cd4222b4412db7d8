// A CUPTI client beside pymon: its two buffer callbacks, native so that none of them waits for Python's lock. It needs no
// CUPTI to build: the test hands the two addresses to cuptiActivityRegisterCallbacks.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {
constexpr size_t kBytes = size_t{1} << 20;
std::atomic<uint64_t> g_requested{0}, g_completed{0}, g_with_records{0};
}  // namespace

extern "C" {
void client_requested(uint8_t** buffer, size_t* bytes, size_t* most) {
  ++g_requested;
  *buffer = static_cast<uint8_t*>(std::calloc(1, kBytes));
  *bytes = *buffer == nullptr ? 0 : kBytes;
  *most = 0;
}

// Never freed: a few buffers, in a process that ends soon.
void client_completed(void*, uint32_t, uint8_t*, size_t, size_t valid_bytes) {
  ++g_completed;
  g_with_records += valid_bytes > 0;
}

uint64_t client_buffers_requested() { return g_requested; }
uint64_t client_buffers_with_records() { return g_with_records; }
}
