#include "store/redis_connection.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kLongestWaitMs = 3'600'000;

// hiredis writes to its socket without MSG_NOSIGNAL, so a server that went away would kill this
// process with SIGPIPE. Held back for this thread only: a library must not change how the whole
// process takes signals.
class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~SigpipeGuard() {
    if (!was_pending_) {
      const timespec now{};
      sigtimedwait(&pipe_, nullptr, &now);  // ours, if one came
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

timeval toTimeval(milliseconds time) {
  const auto count = std::max<milliseconds::rep>(time.count(), 1);  // 0 would mean for ever
  timeval out;
  out.tv_sec = static_cast<time_t>(count / 1000);
  out.tv_usec = static_cast<suseconds_t>(count % 1000 * 1000);
  return out;
}

bool startsWithAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
}

tl::unexpected<Error> badUrl(const std::string& url, const std::string& why) {
  return badInput("store url \"" + url + "\" " + why +
                  ": write unix:/path/redis.sock or redis://host:port");
}

}  // namespace

Result<RedisAddress> parseRedisUrl(const std::string& url) {
  RedisAddress address;
  address.url = url;
  if (url.find('\0') != std::string::npos) return badUrl(url, "holds a NUL byte");
  std::string_view rest = url;
  if (rest.starts_with("unix:")) {
    address.unix_path = rest.substr(5);
    if (address.unix_path.empty()) return badUrl(url, "names no socket");
    // hiredis would cut the path short and connect to another one.
    if (address.unix_path.size() >= sizeof(sockaddr_un::sun_path))
      return badUrl(url, "has a socket path longer than the system allows");
    return address;
  }
  if (!rest.starts_with("redis://")) return badUrl(url, "has an unknown scheme");
  rest.remove_prefix(8);
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return badUrl(url, "names no port");
  std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find_first_of("@/[] ") != std::string_view::npos ||
      (!bracketed && host.find(':') != std::string_view::npos))
    return badUrl(url, "has no plain host name");
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size() || address.port < 1 ||
      address.port > 65535)
    return badUrl(url, "has a port outside 1..65535");
  address.host = host;
  return address;
}

bool RedisView::isNil() const { return reply_ == nullptr || reply_->type == REDIS_REPLY_NIL; }

bool RedisView::isError() const { return reply_ != nullptr && reply_->type == REDIS_REPLY_ERROR; }

bool RedisView::isText() const {
  return reply_ != nullptr &&
         (reply_->type == REDIS_REPLY_STRING || reply_->type == REDIS_REPLY_STATUS);
}

std::string_view RedisView::text() const {
  if (!(isText() || isError()) || reply_->str == nullptr) return {};
  return {reply_->str, static_cast<size_t>(reply_->len)};
}

int64_t RedisView::integer() const {
  return reply_ != nullptr && reply_->type == REDIS_REPLY_INTEGER ? reply_->integer : 0;
}

size_t RedisView::size() const {
  return reply_ != nullptr && reply_->type == REDIS_REPLY_ARRAY ? reply_->elements : 0;
}

RedisView RedisView::operator[](size_t index) const {
  return RedisView(index < size() ? reply_->element[index] : nullptr);
}

void RedisReply::Free::operator()(redisReply* reply) const { freeReplyObject(reply); }

void RedisConnection::Free::operator()(redisContext* context) const { redisFree(context); }

RedisConnection::RedisConnection(RedisAddress address, uint64_t timeout_ms)
    : address_(std::move(address)), timeout_(std::clamp<uint64_t>(timeout_ms, 1, kLongestWaitMs)) {}

tl::unexpected<Error> RedisConnection::unavailable(std::string_view why) const {
  return fail(ErrorCode::kUnavailable, "the store at " + address_.url + " does not answer (" +
                                           std::string(why) +
                                           "): check that Redis runs and can be reached from here");
}

tl::unexpected<Error> RedisConnection::refused(std::string_view error) const {
  const std::string words(error.substr(0, 300));
  if (startsWithAny(error, {"NOAUTH", "WRONGPASS", "NOPERM"}))
    return badInput("the store at " + address_.url + " refuses this user (" + words +
                    "): let the default user in, or use another Redis");
  // Conditions of the server, not of the command: they pass, or a person mends them there.
  if (startsWithAny(error, {"LOADING", "BUSY ", "OOM", "MISCONF", "READONLY", "NOREPLICAS",
                            "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED"}) ||
      error.find("max number of clients") != std::string_view::npos)
    return unavailable(words);
  return fail(ErrorCode::kInternal,
              "the store at " + address_.url + " refused a command: " + words);
}

Status RedisConnection::connect() {
  if (context_ != nullptr) return {};
  const timeval limit = toTimeval(timeout_);
  const bool tcp = address_.unix_path.empty();
  context_.reset(tcp ? redisConnectWithTimeout(address_.host.c_str(), address_.port, limit)
                     : redisConnectUnixWithTimeout(address_.unix_path.c_str(), limit));
  if (context_ == nullptr) return unavailable("no memory for a connection");
  if (context_->err != 0) {
    const std::string why = context_->errstr;
    context_.reset();
    return unavailable(why);
  }
  if (tcp) redisEnableKeepAlive(context_.get());  // a help only: the time-outs do the work
  return {};
}

Result<RedisReply> RedisConnection::exchange(const Arguments& arguments, uint64_t block_ms) {
  const SigpipeGuard guard;
  const auto deadline = Clock::now() + timeout_;
  ALLOT_TRY(connect());
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  const milliseconds block(std::min(block_ms, kLongestWaitMs));
  if (redisSetTimeout(context_.get(), toTimeval(std::max(left, milliseconds(1)) + block)) !=
      REDIS_OK) {
    context_.reset();
    return unavailable("the socket takes no time-out");
  }
  std::vector<const char*> words;
  std::vector<size_t> sizes;
  words.reserve(arguments.size());
  sizes.reserve(arguments.size());
  for (const std::string_view argument : arguments) {
    words.push_back(argument.empty() ? "" : argument.data());
    sizes.push_back(argument.size());
  }
  auto* reply = static_cast<redisReply*>(
      redisCommandArgv(context_.get(), static_cast<int>(words.size()), words.data(), sizes.data()));
  if (reply == nullptr) {
    const std::string why = context_->errstr;
    context_.reset();
    return unavailable(why.empty() ? "connection lost" : why);
  }
  return RedisReply(reply);
}

Result<RedisReply> RedisConnection::call(const Arguments& arguments, uint64_t block_ms) {
  ALLOT_ASSIGN(RedisReply reply, exchange(arguments, block_ms));
  if (reply.view().isError()) return refused(reply.view().text());
  return reply;
}

Result<RedisReply> RedisConnection::run(const RedisScript& script, const Arguments& keys,
                                        const Arguments& arguments) {
  const std::string key_count = std::to_string(keys.size());
  Arguments words = {"EVALSHA", script.sha1, key_count};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  ALLOT_ASSIGN(RedisReply reply, exchange(words, 0));
  if (reply.view().isError() && reply.view().text().starts_with("NOSCRIPT")) {
    words[0] = "EVAL";
    words[1] = script.text;
    ALLOT_ASSIGN(reply, exchange(words, 0));
  }
  if (reply.view().isError()) {
    auto error = refused(reply.view().text());
    if (error.value().code == ErrorCode::kInternal)
      error.value().message += std::string(" (script ") + script.name + ")";
    return error;
  }
  return reply;
}

}  // namespace allot
