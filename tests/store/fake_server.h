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

// Listens on a TCP port of this host and answers the first request of each client with fixed bytes.
class FakeServer {
 public:
  explicit FakeServer(std::string answer) : answer_(std::move(answer)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
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
  int fd_ = -1;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace allot::test
