// The CUDA_INJECTION64_PATH entry, for processes that do not import pymon: the driver loads this library inside cuInit and
// calls InitializeInjection. Same core, same page, without steps and phases, which only the probe knows.
//
// The driver is built without exceptions and holds its locks here: nothing is done but reading the environment and
// starting a thread, nothing leaves by an exception, and the answer is always 1, because a monitor must not stop training. All symbols but the entry are
// hidden, and the C++ library is linked in, so that nothing here meets the program's own.
#include <sys/random.h>
#include <time.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "core/page_writer.h"
#include "core/thread.h"
#include "gpu/gpu_core.h"
#include "gpu/library.h"
#include "inject/agent_client.h"

namespace {

using pymon::AgentClient;
using pymon::GpuCore;
using pymon::PageWriter;

PageWriter* g_page = nullptr;
AgentClient* g_client = nullptr;
pymon::GpuOptions* g_options = nullptr;

void forget_in_child() {
  if (g_page != nullptr) g_page->disarm_in_child();
  if (g_client != nullptr) g_client->forget_in_child();
  GpuCore::forget_in_child();
}

// PYMON=1 brings the probe, which knows steps too; PYMON=0 wants no pymon.
bool is_wanted() {
  const char* value = std::getenv("PYMON");
  return value == nullptr || (std::strcmp(value, "0") != 0 && std::strcmp(value, "1") != 0);
}

void* run(void*) {
  try {
    // cuInit, in which we were called, comes to its end meanwhile.
    const timespec a_moment{0, 200'000'000};
    nanosleep(&a_moment, nullptr);
    uint8_t attach_id[16];
    if (getrandom(attach_id, sizeof attach_id, 0) != sizeof attach_id) return nullptr;
    auto made = PageWriter::create(attach_id);
    if (!made.ok()) return nullptr;
    g_page = made.value();
    g_client->hand_over(attach_id, g_page->fd());
    pthread_atfork(nullptr, nullptr, &forget_in_child);
    GpuCore::instance().start(g_page, *g_options);
    g_client->run();
  } catch (...) {  // no memory: not watched
  }
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  static bool called = false;
  if (called || !is_wanted()) return 1;
  called = true;
  try {
    g_client = new AgentClient;
    g_options = new pymon::GpuOptions;
    g_options->why_no_events = "the process is watched by injection, which does not know its streams";
    g_options->why_no_cupti = pymon::other_tool();
    g_options->cupti.loading = pymon::Loading::kMayLoad;
    g_options->cupti.expects_kineto = pymon::expects_kineto();
    g_options->cupti.knows_steps = false;
  } catch (...) {  // no memory: not watched
    return 1;
  }
  pthread_t thread;
  if (pymon::start_thread(&thread, "pymon-inject", &run, nullptr)) pthread_detach(thread);
  return 1;
}
