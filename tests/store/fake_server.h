#pragma once
// FakeServer: a server that does not speak as Redis does. Owned by the test; its thread ends with
// it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace allot::test {

// Returns a socket that is bound to a free port of this host, which it tells.
inline int boundSocket(int* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  *port = ntohs(address.sin_port);
  return fd;
}

// Listens on a TCP port of this host and answers the first request of each client with fixed bytes.
class FakeServer {
 public:
  explicit FakeServer(std::string answer) : answer_(std::move(answer)), fd_(boundSocket(&port_)) {
    EXPECT_EQ(listen(fd_, 8), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }

 private:
  void serve() {
    for (;;) {
      const int client = accept(fd_, nullptr, nullptr);
      if (client < 0) return;
      char request[4096];
      if (recv(client, request, sizeof(request), 0) > 0)
        send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      close(client);
    }
  }

  std::string answer_;
  int port_ = 0;
  int fd_ = -1;
  std::thread thread_;
};

}  // namespace allot::test
