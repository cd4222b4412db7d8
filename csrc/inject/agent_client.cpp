#include "inject/agent_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/clock.h"

namespace pymon {
namespace {

constexpr unsigned kRetryS = 1, kRejectedS = 60;  // as pymon/probe/sender.py
constexpr int kTickMs = 500;
constexpr size_t kMessageBytes = 64 * 1024;  // wire.MAX_MESSAGE_BYTES
constexpr const char* kSystemSocket = "/run/pymon/agent.sock";

// First one that is set wins; as pymon/probe/identity.py.
constexpr const char* kRank[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"};
constexpr const char* kLocalRank[] = {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr const char* kWorldSize[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"};
constexpr const char* kJob[] = {"PYMON_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"};

std::string first_set(const char* const (&names)[3]) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0' && std::strcmp(value, "none") != 0) return value;
  }
  return {};
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// As JSON: digits alone, else null.
std::string number(const char* const (&names)[3]) {
  const std::string text = first_set(names);
  const bool digits = !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? text : "null";
}

// A JSON string; what is no printable ASCII becomes '?', since the environment may hold anything.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text.substr(0, 512)) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return out + "\"";
}

std::string hex(const uint8_t (&bytes)[16]) {
  std::string out;
  char digits[3];
  for (const uint8_t byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    out += digits;
  }
  return out;
}

// The program's name alone: paths and arguments may hold what is nobody's business.
std::string script() {
  char text[4096] = {};
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  const char* slash = size > 0 ? std::strrchr(text, '/') : nullptr;
  return slash == nullptr ? text : slash + 1;
}

std::vector<std::string> candidates() {
  if (const std::string chosen = variable("PYMON_SOCKET"); !chosen.empty()) return {chosen};
  std::vector<std::string> found = {kSystemSocket};
  if (const std::string runtime = variable("XDG_RUNTIME_DIR"); !runtime.empty()) {
    found.push_back(runtime + "/pymon/agent.sock");
  }
  return found;
}

// Whoever owns the socket, or listens on it, sees the page: root, us, or whom root gave the system socket's folder.
bool is_trusted(uid_t uid, const std::string& path) {
  if (uid == 0 || uid == geteuid()) return true;
  struct stat folder;
  return path == kSystemSocket && stat("/run/pymon", &folder) == 0 && folder.st_uid == uid;
}

int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  struct stat status;
  if (path.size() >= sizeof address.sun_path || stat(path.c_str(), &status) != 0) return -1;
  if (!is_trusted(status.st_uid, path)) return -1;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  // A full backlog answers EAGAIN at once: the next try comes soon enough.
  ucred peer{};
  socklen_t size = sizeof peer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && is_trusted(peer.uid, path)) {
    return fd;
  }
  close(fd);
  return -1;
}

// The value of a string field in one JSON object of the daemon's, which writes no escapes into ids.
std::string field(const std::string& message, const char* name) {
  const std::string key = std::string("\"") + name + "\": \"";
  const size_t begin = message.find(key);
  if (begin == std::string::npos) return {};
  const size_t end = message.find('"', begin + key.size());
  return end == std::string::npos ? std::string() : message.substr(begin + key.size(), end - begin - key.size());
}

}  // namespace

AgentClient::AgentClient()
    : sockets_(candidates()),
      identity_(", \"rank\": " + number(kRank) + ", \"local_rank\": " + number(kLocalRank) + ", \"world_size\": " +
                number(kWorldSize) + ", \"job_id\": " + quoted(first_set(kJob)) + ", \"run_id\": " +
                quoted(variable("PYMON_RUN_ID"))) {}

void AgentClient::hand_over(const uint8_t (&attach_id)[16], int page_fd) {
  attach_id_ = hex(attach_id);
  page_fd_ = page_fd;
}

void AgentClient::run() noexcept {
  for (;;) {
    unsigned wait_s = kRetryS;
    try {
      if (connect_to_any()) wait_s = serve();
    } catch (...) {  // no memory: later
    }
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
    sleep(wait_s);
  }
}

bool AgentClient::connect_to_any() {
  for (const std::string& path : sockets_) {
    socket_ = connect_to(path);
    if (socket_ < 0) continue;
    std::string text = hello();
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof page_fd_)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof page_fd_);
    std::memcpy(CMSG_DATA(header), &page_fd_, sizeof page_fd_);
    return sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
  }
  return false;
}

// Until the connection ends; how long to wait before the next.
unsigned AgentClient::serve() {
  std::vector<char> buffer(kMessageBytes);
  for (;;) {
    pollfd waiting{socket_, POLLIN, 0};
    if (poll(&waiting, 1, kTickMs) <= 0) continue;
    const ssize_t size = recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) return kRetryS;
    const std::string message(buffer.data(), static_cast<size_t>(size));
    if (field(message, "type") == "reject") return kRejectedS;
    if (field(message, "type") != "capture") continue;
    const std::string receipt = "{\"type\": \"receipt\", \"status\": \"refused\", \"reason\": \"the process is watched by "
                                "injection: there is no torch profiler to use in it\", \"capture_id\": " +
                                quoted(field(message, "capture_id")) + "}";
    if (send(socket_, receipt.data(), receipt.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return kRetryS;
  }
}

std::string AgentClient::hello() const {
  return "{\"type\": \"hello\", \"version\": 1, \"attach_id\": \"" + attach_id_ +
         "\", \"pid\": " + std::to_string(getpid()) + identity_ + ", \"script\": " + quoted(script()) +
         ", \"attached_real_ns\": " + std::to_string(real_ns()) + "}";
}

void AgentClient::forget_in_child() noexcept {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

}  // namespace pymon
