#include "store/redis/host_lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace allot {
namespace {

// Shared by the thread that looks up and all that wait for it.
struct Lookup {
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
  std::vector<std::string> addresses;
  std::string fault;  // "": none
};

// Those under way, by host. Never destroyed: a thread may come back when the process ends.
struct UnderWay {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Lookup>> lookups;
};

UnderWay& underWay() {
  static auto* const all = new UnderWay;
  return *all;
}

bool isNumber(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// 0, or what gai_strerror explains.
int ask(const std::string& host, int family, std::vector<std::string>* addresses) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return error;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0)
      addresses->emplace_back(text);
  }
  freeaddrinfo(found);
  return 0;
}

void lookUp(const std::string& host, Lookup* lookup) {
  std::vector<std::string> addresses;
  int error = ask(host, AF_INET, &addresses);
  if (addresses.empty()) error = ask(host, AF_INET6, &addresses);
  const std::lock_guard lock(lookup->mutex);
  lookup->done = true;
  if (addresses.empty()) lookup->fault = error == 0 ? "no address" : gai_strerror(error);
  lookup->addresses = std::move(addresses);
  lookup->answered.notify_all();
}

// The lookup of this host that is under way, or a new one.
Result<std::shared_ptr<Lookup>> begin(const std::string& host) {
  UnderWay& all = underWay();
  const std::lock_guard lock(all.mutex);
  auto& known = all.lookups[host];
  if (known) return known;
  known = std::make_shared<Lookup>();
  // Signals are for the threads that expect them.
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  std::string fault;
  try {
    std::thread([host, lookup = known] {
      lookUp(host, lookup.get());
      UnderWay& under_way = underWay();
      const std::lock_guard ended(under_way.mutex);
      under_way.lookups.erase(host);  // the next one asks anew
    }).detach();
  } catch (const std::system_error& error) {
    fault = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (fault.empty()) return known;
  all.lookups.erase(host);
  return fail(ErrorCode::kUnavailable, "no thread to look its name up: " + fault);
}

}  // namespace

Result<std::vector<std::string>> lookUpHost(const std::string& host,
                                            std::chrono::steady_clock::time_point deadline) {
  if (isNumber(host)) return std::vector<std::string>{host};
  ALLOT_ASSIGN(const std::shared_ptr<Lookup> lookup, begin(host));
  std::unique_lock lock(lookup->mutex);
  if (!lookup->answered.wait_until(lock, deadline, [&] { return lookup->done; }))
    return fail(ErrorCode::kUnavailable, "its name is still being looked up");
  if (lookup->addresses.empty()) return fail(ErrorCode::kUnavailable, lookup->fault);
  return lookup->addresses;
}

}  // namespace allot
