#pragma once
// httpGet: one GET over a socket of its own, for tests.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace allot::test {

struct HttpAnswer {
  int status = 0;  // 0: nobody answered
  std::string head;
  std::string body;
};

// From 127.0.0.1. header: more lines of the request, each with its end.
inline HttpAnswer httpGet(uint16_t port, const std::string& path, const std::string& header = "") {
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{10, 0};
  ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const std::string request = "GET " + path + " HTTP/1.0\r\n" + header + "\r\n";
  std::string text;
  if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::send(client, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    char bytes[65536];
    for (ssize_t n = 0; (n = ::recv(client, bytes, sizeof bytes, 0)) > 0;) {
      text.append(bytes, static_cast<size_t>(n));
    }
  }
  ::close(client);
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos || text.size() < 12) return {};
  return {static_cast<int>(std::strtol(text.c_str() + 9, nullptr, 10)), text.substr(0, end),
          text.substr(end + 4)};
}

}  // namespace allot::test
