#include "core/process_start.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "core/clock.h"

namespace pymon {

uint64_t start_ticks() noexcept {
  char text[1024];
  const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* at = std::strrchr(text, ')');  // counting starts behind it: the command's name may hold anything
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

uint64_t process_start_mono_ns() noexcept {
  const uint64_t ticks = start_ticks();
  const long per_second = sysconf(_SC_CLK_TCK);
  timespec boot;
  if (ticks == 0 || per_second <= 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) return 0;
  const uint64_t boot_ns = static_cast<uint64_t>(boot.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(boot.tv_nsec);
  const uint64_t started_ns = ticks * (1'000'000'000u / static_cast<uint64_t>(per_second));
  const uint64_t age_ns = boot_ns > started_ns ? boot_ns - started_ns : 0;
  const uint64_t now_ns = mono_ns();
  return age_ns < now_ns ? now_ns - age_ns : 0;
}

}  // namespace pymon
