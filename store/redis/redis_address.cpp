#include "store/redis/redis_address.h"

#include <fcntl.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace allot {
namespace {

constexpr size_t kLongestPassword = 4096;

// Returns the part of an unparsed address that messages show. A password may stand before an '@' or
// in an option.
std::string shownPart(std::string_view url) {
  if (url.find('@') == std::string_view::npos)
    return std::string(url.substr(0, url.find('?')).substr(0, 300));
  for (const char* scheme : {"redis://", "rediss://", "unix:"})
    if (url.starts_with(scheme)) return scheme + std::string("...");
  return "...";
}

tl::unexpected<Error> badUrl(std::string_view url, const std::string& why) {
  return badInput("store url \"" + shownPart(url) + "\" " + why +
                  ": write unix:/path/redis.sock or redis://host:port");
}

tl::unexpected<Error> passwordInside(std::string_view url) {
  return badInput("store url \"" + shownPart(url) +
                  "\" holds a password, which anybody who lists processes could read: put it into "
                  "a file and write redis://user@host:port?password-file=/path");
}

Status checkUser(std::string_view url, std::string_view user) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  if (user.empty() || user.size() > 128 ||
      user.find_first_not_of(kAllowed) != std::string_view::npos)
    return badUrl(url, "names a user that is not 1 to 128 letters, digits, '-', '_' or '.'");
  return {};
}

// Returns the field of an option; null if this kind of address does not have the option.
std::string* optionField(RedisAddress& address, std::string_view name) {
  if (name == "password-file") return &address.password_file;
  if (name == "user" && !address.unix_path.empty()) return &address.user;
  if (!address.tls) return nullptr;
  if (name == "ca") return &address.ca_file;
  if (name == "cert") return &address.cert_file;
  if (name == "key") return &address.key_file;
  if (name == "name") return &address.name;
  return nullptr;
}

Status parseOptions(std::string_view url, std::string_view options, RedisAddress& address) {
  while (!options.empty()) {
    const size_t end = std::min(options.find('&'), options.size());
    const std::string_view option = options.substr(0, end);
    options.remove_prefix(std::min(end + 1, options.size()));
    const size_t equals = option.find('=');
    std::string* field = optionField(address, option.substr(0, equals));
    const std::string_view name = option.substr(0, equals);
    if (address.unix_path.empty() && !address.tls &&
        (name == "ca" || name == "cert" || name == "key" || name == "name"))
      return badUrl(url, "has the option " + std::string(name) + ", which is for rediss://");
    // The name of an unknown option is not repeated: it may be a password.
    if (field == nullptr)
      return badUrl(
          url, address.tls ? "has an option other than password-file, ca, cert, key and name"
               : address.unix_path.empty() ? "has an option other than password-file"
                                           : "has an option other than user and password-file");
    if (equals == std::string_view::npos || equals + 1 == option.size())
      return badUrl(url, "has an option without a value");
    if (!field->empty()) return badUrl(url, "has an option twice");
    *field = option.substr(equals + 1);
  }
  return {};
}

Status parseHost(std::string_view url, std::string_view rest, RedisAddress& address) {
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return badUrl(url, "names no port");
  std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find_first_of("@/[] ") != std::string_view::npos ||
      (!bracketed && host.find(':') != std::string_view::npos))
    return badUrl(url, "has no plain host name");
  if (port.find('/') != std::string_view::npos)
    return badUrl(url, "has a path behind its port; a number of a database is not supported");
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size() || address.port < 1 ||
      address.port > 65535)
    return badUrl(url, "has a port outside 1..65535");
  address.host = host;
  return {};
}

Status parseSocket(std::string_view url, std::string_view rest, RedisAddress& address) {
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    if (!rest.starts_with('/')) return badUrl(url, "names a host before the socket's path");
  }
  if (rest.empty()) return badUrl(url, "names no socket");
  // hiredis would cut the path and connect to another one.
  if (rest.size() >= sizeof(sockaddr_un::sun_path))
    return badUrl(url, "has a socket path longer than the system allows");
  address.unix_path = rest;
  return {};
}

Status parseServer(std::string_view url, std::string_view rest, RedisAddress& address) {
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view user = rest.substr(0, at);
    if (user.find(':') != std::string_view::npos) return passwordInside(url);
    ALLOT_TRY(checkUser(url, user));
    address.user = user;
    rest.remove_prefix(at + 1);
  }
  return parseHost(url, rest, address);
}

}  // namespace

Result<RedisAddress> parseRedisUrl(const std::string& url) {
  std::string_view rest = url;
  if (rest.find('\0') != std::string_view::npos) return badUrl("", "holds a NUL byte");
  if (rest.find('%') != std::string_view::npos)
    return badUrl(url, "holds a '%', but names and paths are taken as they are written");
  RedisAddress address;
  const bool socket = rest.starts_with("unix:");
  address.tls = rest.starts_with("rediss://");
  if (!socket && !address.tls && !rest.starts_with("redis://"))
    return badUrl(url, "has an unknown scheme");
  rest.remove_prefix(socket ? 5 : address.tls ? 9 : 8);
  const size_t question = std::min(rest.find('?'), rest.size());
  const std::string_view place = rest.substr(0, question);
  const std::string_view options = rest.substr(std::min(question + 1, rest.size()));
  ALLOT_TRY(socket ? parseSocket(url, place, address) : parseServer(url, place, address));
  ALLOT_TRY(parseOptions(url, options, address));
  if (socket && !address.user.empty()) ALLOT_TRY(checkUser(url, address.user));
  if (!address.user.empty() && address.password_file.empty())
    return badUrl(url, "names a user without a password file; add ?password-file=/path");
  if (address.cert_file.empty() != address.key_file.empty())
    return badUrl(url, "has one of cert and key, which go together");
  address.shown = url.substr(0, url.find('?'));
  return address;
}

Result<std::string> readPassword(const std::string& path) {
  const auto unreadable = [&](const std::string& why) {
    return badInput("password file " + path + " " + why +
                    ": let it hold the password of the store's user and nothing else");
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return unreadable("cannot be read (" + std::string(std::strerror(errno)) + ")");
  std::string password(kLongestPassword + 2, '\0');
  size_t size = 0;
  ssize_t got = 0;
  do {
    got = read(file, password.data() + size, password.size() - size);
    if (got > 0) size += static_cast<size_t>(got);
  } while (size < password.size() && (got > 0 || (got < 0 && errno == EINTR)));
  const int fault = got < 0 ? errno : 0;
  close(file);
  if (fault != 0) return unreadable("cannot be read (" + std::string(std::strerror(fault)) + ")");
  password.resize(size);
  if (password.ends_with('\n')) password.pop_back();
  if (password.ends_with('\r')) password.pop_back();
  if (password.empty()) return unreadable("is empty");
  if (password.size() > kLongestPassword) return unreadable("is too long");
  return password;
}

}  // namespace allot
