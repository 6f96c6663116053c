#include "store/redis/host_lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace allot {
namespace {

// One lookup, shared by its thread and all callers that wait for it.
struct Lookup {
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
  std::chrono::steady_clock::time_point done_at;
  std::vector<std::string> addresses;
  std::string fault;  // "": none
};

// Lookups under way, and answers that nobody has got yet, by host. Never destroyed: a lookup may
// finish while the process ends.
struct Lookups {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Lookup>> by_host;
};

Lookups& lookups() {
  static auto* const all = new Lookups;
  return *all;
}

// The time after which an answer that nobody got is dropped.
constexpr std::chrono::seconds kAnswerKept{30};

bool isNumber(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// Appends the host's addresses. Returns 0, or an error for gai_strerror.
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
  lookup->done_at = std::chrono::steady_clock::now();
  if (addresses.empty()) lookup->fault = error == 0 ? "no address" : gai_strerror(error);
  lookup->addresses = std::move(addresses);
  lookup->answered.notify_all();
}

bool isOld(Lookup* lookup) {
  const std::lock_guard lock(lookup->mutex);
  return lookup->done && std::chrono::steady_clock::now() - lookup->done_at > kAnswerKept;
}

// Returns the lookup of this host that is under way or unread, or starts one.
Result<std::shared_ptr<Lookup>> lookupOf(const std::string& host) {
  Lookups& all = lookups();
  const std::lock_guard lock(all.mutex);
  auto& known = all.by_host[host];
  if (known && !isOld(known.get())) return known;
  known = std::make_shared<Lookup>();
  // The new thread gets no signals.
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  std::string fault;
  try {
    std::thread([host, lookup = known] { lookUp(host, lookup.get()); }).detach();
  } catch (const std::exception& error) {
    fault = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (fault.empty()) return known;
  all.by_host.erase(host);
  return fail(ErrorCode::kUnavailable, "no thread to look its name up: " + fault);
}

// Drops a lookup that was read: the next call starts another one.
void forget(const std::string& host, const std::shared_ptr<Lookup>& lookup) {
  Lookups& all = lookups();
  const std::lock_guard lock(all.mutex);
  const auto known = all.by_host.find(host);
  if (known != all.by_host.end() && known->second == lookup) all.by_host.erase(known);
}

}  // namespace

Result<std::vector<std::string>> lookUpHost(const std::string& host,
                                            std::chrono::steady_clock::time_point deadline) {
  if (isNumber(host)) return std::vector<std::string>{host};
  ALLOT_ASSIGN(const std::shared_ptr<Lookup> lookup, lookupOf(host));
  std::unique_lock lock(lookup->mutex);
  if (!lookup->answered.wait_until(lock, deadline, [&] { return lookup->done; }))
    return fail(ErrorCode::kUnavailable, "its name is still being looked up");
  lock.unlock();  // nothing changes any more
  forget(host, lookup);
  if (lookup->addresses.empty()) return fail(ErrorCode::kUnavailable, lookup->fault);
  return lookup->addresses;
}

}  // namespace allot
