// A page, and a look at its GPU sections.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/page_reader.h"
#include "core/page_writer.h"
#include "doubles/cuda/cuda_double.h"
#include "gpu/library.h"

struct Page {
  Page() {
    const uint8_t id[16] = {1};
    writer.reset(pymon::PageWriter::create(id).value());
    reader = std::move(pymon::PageReader::open(writer->fd()).value());
  }

  // Whole states only: a reader may find the writer at it, and on a loaded machine for long.
  pymon::GpuBody gpu() const {
    pymon::GpuBody body{};
    whole([&] { return reader->gpu(&body); });
    return body;
  }
  pymon::CuptiBody cupti() const {
    pymon::CuptiBody body{};
    whole([&] { return reader->cupti(&body); });
    return body;
  }

  std::unique_ptr<pymon::PageWriter> writer;
  std::unique_ptr<pymon::PageReader> reader;

 private:
  template <typename Read>
  static void whole(Read read) {
    for (int i = 0; i < 30'000; ++i) {
      if (read()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL("the page's section was never whole");
  }
};

// Layers live as long as the process, since CUDA and CUPTI may call late; a test ends by stopping its own.
template <typename Layer>
Layer* kept(Layer* layer) {
  static auto* all = new std::vector<Layer*>;  // outlives main, for the leak checker's sake
  all->push_back(layer);
  return layer;
}

// Until `done`, thirty seconds at most; whether it came to that.
template <typename Done>
bool eventually(Done done) {
  for (int i = 0; i < 6000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

inline const pymon::cuda::Api& cuda_api() {
  static pymon::cuda::Api api = pymon::load_cuda(pymon::Loading::kOnlyLoaded).value();
  return api;
}
