// The trainer's side of the page: makes the sealed memfd and writes it. All calls come from one thread at a time.
#pragma once

#include <cstdint>

#include "core/layout.h"
#include "core/result.h"

namespace pymon {

class PageWriter {
 public:
  // A fresh page under a random id. The caller owns the writer; the probe keeps it until the process ends.
  static Result<PageWriter*> create(const uint8_t attach_id[16]);

  // Unmaps and closes; a daemon that holds the memfd keeps the last state.
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;

  // The writer's own copy: change it freely, then `publish`.
  TrainBody& body() noexcept { return body_; }

  // Copies `body()` into the page, for readers all at once.
  void publish() noexcept;

  // Puts a finished step into the ring, over the one 4,096 steps before. Steps count from 1; 0 is ignored.
  void push_step(const RingEntry& entry) noexcept;

  // The memfd, for the daemon; -1 after `disarm_in_child`.
  int fd() const noexcept { return fd_; }

  // In a fork's child: lets go of the page, so that nothing this process does later can reach it. `body()` stays
  // usable, `publish` and `push_step` do nothing.
  void disarm_in_child() noexcept;

 private:
  PageWriter(int fd, unsigned char* page) noexcept : fd_(fd), page_(page) {}
  void write_header(const uint8_t attach_id[16]) noexcept;

  int fd_;
  unsigned char* page_;  // nullptr: disarmed
  TrainBody body_{};
};

}  // namespace pymon
