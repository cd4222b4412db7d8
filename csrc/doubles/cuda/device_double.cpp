// The device of the libcuda double: DOUBLE_CUDA_DEVICE="NAME;MAJOR;MINOR", by default an H200.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "doubles/cuda/cuda_double.h"

namespace {

struct Device {
  std::string name = "NVIDIA H200 (double)";
  int major = 9, minor = 0;
};

Device device() {
  Device made;
  const char* text = std::getenv("DOUBLE_CUDA_DEVICE");
  if (text == nullptr) return made;
  const char* rest = std::strchr(text, ';');
  made.name.assign(text, rest == nullptr ? std::strlen(text) : static_cast<size_t>(rest - text));
  if (rest != nullptr) std::sscanf(rest, ";%d;%d", &made.major, &made.minor);
  return made;
}

constexpr int kInvalidDevice = 101, kInvalidValue = 1;

}  // namespace

PYMON_DOUBLE int cuDeviceGet(int* handle, int ordinal) {
  if (ordinal != 0) return kInvalidDevice;
  *handle = 0;
  return 0;
}

PYMON_DOUBLE int cuDeviceGetName(char* name, int length, int) {
  std::snprintf(name, static_cast<size_t>(length), "%s", device().name.c_str());
  return 0;
}

PYMON_DOUBLE int cuDeviceGetAttribute(int* value, int attribute, int) {
  if (attribute != 75 && attribute != 76) return kInvalidValue;  // compute capability, major and minor
  *value = attribute == 75 ? device().major : device().minor;
  return 0;
}
