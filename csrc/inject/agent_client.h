// An injected process's talk with the daemon: the probe's in pymon/probe/sender.py, without Python. It hands the page over,
// comes back after a daemon's restart, and refuses capture orders, since there is no torch profiler to obey them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pymon {

class AgentClient {
 public:
  // What the environment says is read here, once: reading it while the program changes it could crash. May throw.
  AgentClient();

  // `page_fd` is the page's memfd, borrowed.
  void hand_over(const uint8_t (&attach_id)[16], int page_fd);

  // Until the process ends; for a thread of its own. Never blocks longer than its timeouts, and never throws.
  void run() noexcept;

  // In a fork's child: the parent's connection is not the child's, and holding it would hide the parent's death.
  void forget_in_child() noexcept;

 private:
  bool connect_to_any();
  unsigned serve();
  std::string hello() const;

  std::vector<std::string> sockets_;
  std::string identity_;  // the part of the hello that stays
  std::string attach_id_;
  int page_fd_ = -1;
  int socket_ = -1;
};

}  // namespace pymon
