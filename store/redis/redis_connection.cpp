#include "store/redis/redis_connection.h"

#include <hiredis/hiredis.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>

#include "store/redis/host_lookup.h"

namespace allot {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kLongestWaitMs = 3'600'000;
// More than any result that allot writes.
constexpr size_t kMostWakeUpBytes = 512 * 1024;
constexpr int kAskStopEveryMs = 100;
// Of one reply, more than any store of ours sends: 100,000 entries of seven elements, and a record
// of an update with 10,000 results.
constexpr int64_t kMostElements = 2'000'000;
constexpr size_t kMostReplyBytes = size_t{512} << 20;
constexpr const char* kTooLarge = "its answer is larger than any of a run's";

// Elements that the reply which this thread reads may still have. An element has 4 bytes on the
// wire and 64 here.
thread_local int64_t elements_left = 0;

// Count is int in hiredis 0.14, size_t in 1.x.
template <typename Count>
void* makeArray(const redisReadTask* task, Count count) {
  if (count > static_cast<Count>(0)) elements_left -= static_cast<int64_t>(count);
  if (elements_left < 0) return nullptr;
  static const redisReplyObjectFunctions usual = [] {
    redisReader* reader = redisReaderCreate();
    const redisReplyObjectFunctions functions = *reader->fn;
    redisReaderFree(reader);
    return functions;
  }();
  return usual.createArray(task, count);
}

// Makes a connection refuse replies with more than kMostElements elements.
void boundElements(redisReader* reader) {
  static redisReplyObjectFunctions bounded = [](redisReplyObjectFunctions functions) {
    functions.createArray = &makeArray;
    return functions;
  }(*reader->fn);
  reader->fn = &bounded;
}

// Blocks SIGPIPE in this thread. hiredis writes without MSG_NOSIGNAL, so that a server that went
// away would kill the process. A library must not change the signals of the whole process.
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
  const auto count = std::max<milliseconds::rep>(time.count(), 1);  // 0 means no limit
  timeval out;
  out.tv_sec = static_cast<time_t>(count / 1000);
  out.tv_usec = static_cast<suseconds_t>(count % 1000 * 1000);
  return out;
}

milliseconds timeLeft(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(1));
}

bool startsWithAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
}

// The accounts with which this process was let in. If the server refuses such an account now, the
// account's password counts as being changed. One set for the process, because findRun() and others
// connect anew each time.
class KnownAccounts {
 public:
  void add(const std::string& account) {
    const std::lock_guard lock(mutex_);
    names_.insert(account);
  }
  bool has(const std::string& account) {
    const std::lock_guard lock(mutex_);
    return names_.contains(account);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

KnownAccounts& knownAccounts() {
  static KnownAccounts known;
  return known;
}

// Returns the cause in an error reply. Before Redis 7 an error of a script begins with its place:
// "ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -OOM command ...".
std::string_view causeOf(std::string_view error) {
  if (!startsWithAny(error, {"ERR Error running script", "@user_script"})) return error;
  const size_t cause = error.find(": -");
  return cause == std::string_view::npos ? error : error.substr(cause + 3);
}

}  // namespace

std::vector<std::string_view> ScriptKey::names() const {
  std::vector<std::string_view> all = {name};
  for (size_t at = 0; at < or_names.size();) {
    const size_t end = std::min(or_names.find('|', at + 1), or_names.size());
    all.push_back(or_names.substr(at + 1, end - at - 1));
    at = end;
  }
  return all;
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

RedisConnection::RedisConnection(RedisAddress address, uint64_t timeout_ms, StoreObserver* observer)
    : address_(std::move(address)),
      timeout_(std::clamp<uint64_t>(timeout_ms, 1, kLongestWaitMs)),
      observer_(observer) {}

tl::unexpected<Error> RedisConnection::unavailable(std::string_view why) const {
  return fail(ErrorCode::kUnavailable, "the store at " + address_.shown + " does not answer (" +
                                           std::string(why) +
                                           "): check that Redis runs and can be reached from here");
}

tl::unexpected<Error> RedisConnection::refused(std::string_view reply, std::string_view command) {
  const std::string_view error = causeOf(reply);
  const std::string words(error.substr(0, 300));
  if (startsWithAny(error, {"NOAUTH", "WRONGPASS"})) {
    context_.reset();  // the next call reads the password file again
    if (wasLetIn()) return notLetInNow();
    return badInput("the store at " + address_.shown + " wants to know who we are (" + words +
                    "): give a user and a password file in its url");
  }
  // A command that a script may not use has another message.
  // Of a command in a script Redis 7 says the second, Redis 8 the third.
  if (error.starts_with("NOPERM") ||
      error.find("The user executing the script") != std::string_view::npos ||
      error.find("ACL failure in script") != std::string_view::npos) {
    // The command was allowed before: the account is being changed.
    if (allowed_.contains(command))
      return unavailable("it does not let user " + user() + " do this any more: " + words);
    return badInput("the store at " + address_.shown + " does not let user " + user() +
                    " do this (" + words + "): use the url of another user");
  }
  // Conditions of the server, not of the command.
  if (error.starts_with("OOM"))
    return fail(ErrorCode::kUnavailable, "the store is full: raise maxmemory of the Redis at " +
                                             address_.shown + " (" + words + ")");
  if (startsWithAny(error, {"LOADING", "BUSY ", "MISCONF", "READONLY", "NOREPLICAS", "MASTERDOWN",
                            "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED"}) ||
      error.find("max number of clients") != std::string_view::npos)
    return unavailable(words);
  return fail(ErrorCode::kInternal,
              "the store at " + address_.shown + " refused a command: " + words);
}

Status RedisConnection::connectTcp(Deadline deadline) {
  const auto addresses = lookUpHost(address_.host, deadline);
  if (!addresses) return unavailable(addresses.error().message);
  for (size_t left = addresses->size(); left > 0; --left) {
    const std::string& address = (*addresses)[addresses->size() - left];
    const milliseconds share = timeLeft(deadline) / left;
    context_.reset(redisConnectWithTimeout(address.c_str(), address_.port, toTimeval(share)));
    if (context_ == nullptr) return unavailable("no memory for a connection");
    if (context_->err == 0) break;
  }
  if (context_->err != 0) return broken();
  redisEnableKeepAlive(context_.get());  // its failure is harmless: there are time-outs
  return {};
}

Status RedisConnection::connect(Deadline deadline) {
  socket_limit_ = milliseconds(0);
  tls_.reset();
  if (address_.unix_path.empty()) {
    ALLOT_TRY(connectTcp(deadline));
  } else {
    context_.reset(
        redisConnectUnixWithTimeout(address_.unix_path.c_str(), toTimeval(timeLeft(deadline))));
    if (context_ == nullptr) return unavailable("no memory for a connection");
    if (context_->err != 0) return broken();
  }
  ALLOT_TRY(limitWaits(timeLeft(deadline)));
  if (address_.tls) {
    auto secured = RedisTls::start(context_->fd, address_, deadline);
    if (!secured) {
      context_.reset();
      // A file that could be used before is being replaced.
      if (was_connected_) secured.error().code = ErrorCode::kUnavailable;
      return tl::unexpected(secured.error());
    }
    tls_ = std::move(*secured);
  }
  boundElements(context_->reader);
  if (address_.password_file.empty()) return {};
  const Status known = authenticate(deadline);
  if (!known) context_.reset();
  return known;
}

Status RedisConnection::authenticate(Deadline deadline) {
  const auto password_read = readPassword(address_.password_file);
  if (!password_read && wasLetIn()) return unavailable(password_read.error().message);
  ALLOT_ASSIGN(const std::string password, password_read);
  ALLOT_TRY(send(address_.user.empty() ? Arguments{"AUTH", password}
                                       : Arguments{"AUTH", address_.user, password},
                 deadline));
  ALLOT_ASSIGN(const RedisReply reply, receive(deadline, kMostWakeUpBytes));
  const RedisView answer = reply.view();
  if (answer.isText() && answer.text() == "OK") {
    knownAccounts().add(account());
    return {};
  }
  // The server's message is not repeated: it may quote the password.
  if (!startsWithAny(answer.text(), {"WRONGPASS", "ERR AUTH", "ERR Client sent AUTH", "ERR invalid",
                                     "ERR unknown", "ERR wrong number"}))
    return unavailable("it lets nobody in now");
  if (wasLetIn()) return notLetInNow();
  return badInput("the store at " + address_.shown + " does not take the password in " +
                  address_.password_file + " for user " + user() +
                  ": check both against the server's ACL file");
}

std::string RedisConnection::account() const { return user() + "@" + address_.shown; }

bool RedisConnection::wasLetIn() const { return knownAccounts().has(account()); }

tl::unexpected<Error> RedisConnection::notLetInNow() const {
  return fail(
      ErrorCode::kUnavailable,
      "the store at " + address_.shown + " does not take the password in " +
          address_.password_file + " for user " + user() +
          " any more: it waits until the file holds the new one, or the server the old one");
}

std::string RedisConnection::user() const {
  return address_.user.empty() ? "default" : address_.user;
}

tl::unexpected<Error> RedisConnection::broken() {
  const std::string why = context_->errstr;
  context_.reset();
  return unavailable(why.empty() ? "connection lost" : why);
}

Status RedisConnection::limitWaits(milliseconds time) {
  if (time == socket_limit_) return {};  // saves two system calls
  if (redisSetTimeout(context_.get(), toTimeval(time)) != REDIS_OK) return broken();
  socket_limit_ = time;
  return {};
}

Status RedisConnection::send(const Arguments& arguments, Deadline deadline) {
  std::vector<const char*> words;
  std::vector<size_t> sizes;
  words.reserve(arguments.size());
  sizes.reserve(arguments.size());
  for (const std::string_view argument : arguments) {
    words.push_back(argument.empty() ? "" : argument.data());
    sizes.push_back(argument.size());
  }
  if (tls_) {
    char* command = nullptr;
    const auto size = redisFormatCommandArgv(&command, static_cast<int>(words.size()), words.data(),
                                             sizes.data());
    if (size < 0) return unavailable("no memory for a command");
    const Status sent = tls_->write({command, static_cast<size_t>(size)}, deadline);
    redisFreeCommand(command);
    if (!sent) context_.reset();
    return sent;
  }
  if (redisAppendCommandArgv(context_.get(), static_cast<int>(words.size()), words.data(),
                             sizes.data()) != REDIS_OK)
    return broken();
  for (int done = 0; done == 0;)
    if (redisBufferWrite(context_.get(), &done) != REDIS_OK) return broken();
  return {};
}

Status RedisConnection::readMore(Deadline deadline) {
  if (tls_) {
    std::array<char, 16 * 1024> buffer;
    const auto got = tls_->read(buffer, deadline);
    if (!got) {
      context_.reset();
      return tl::unexpected(got.error());
    }
    redisReaderFeed(context_->reader, buffer.data(), *got);  // its fault is the next reply's
  } else if (redisBufferRead(context_.get()) != REDIS_OK) {
    const bool closed = context_->err == REDIS_ERR_EOF || errno == ECONNRESET;
    if (!closed || was_answered_ || !address_.unix_path.empty()) return broken();
    context_.reset();
    return unavailable("it closes the connection at once; if it has TLS, write rediss://");
  }
  was_answered_ = true;
  return {};
}

// Reads until a reply is complete, as redisGetReply does. Drops the connection and returns
// kUnavailable after the deadline, or a null reply if more than most_bytes wait in the buffer.
Result<RedisReply> RedisConnection::receive(Deadline deadline, size_t most_bytes) {
  elements_left = kMostElements;
  for (;;) {
    ALLOT_TRY(readMore(deadline));
    void* reply = nullptr;
    if (redisGetReplyFromReader(context_.get(), &reply) != REDIS_OK) {
      if (elements_left >= 0) return broken();
      context_.reset();
      return unavailable(kTooLarge);
    }
    if (reply != nullptr) return RedisReply(static_cast<redisReply*>(reply));
    if (context_->reader->len > most_bytes) {
      context_.reset();
      return RedisReply(nullptr);
    }
    if (Clock::now() > deadline) {
      context_.reset();
      return unavailable("no complete answer within the time-out");
    }
  }
}

bool RedisConnection::listen(Deadline deadline, const std::function<bool()>& stop) {
  pollfd socket{context_->fd, POLLIN, 0};
  while (!stop()) {
    const int ready = poll(&socket, 1, kAskStopEveryMs);  // a signal interrupts it
    if ((ready > 0 && (!tls_ || tls_->hasInput())) || Clock::now() > deadline) return true;
  }
  return false;
}

Result<RedisReply> RedisConnection::exchange(const Arguments& arguments, uint64_t block_ms,
                                             size_t most_bytes, const std::function<bool()>& stop) {
  const SigpipeGuard guard;
  const milliseconds block(std::min(block_ms, kLongestWaitMs));
  const Deadline deadline = Clock::now() + timeout_ + block;
  milliseconds left = timeout_ + block;
  if (context_ == nullptr) {
    ALLOT_TRY(connect(Clock::now() + timeout_));
    if (was_connected_ && observer_ != nullptr) observer_->reconnected();
    was_connected_ = true;
    left = timeLeft(deadline);
  }
  ALLOT_TRY(limitWaits(left));
  ALLOT_TRY(send(arguments, deadline));
  if (stop) {
    if (!listen(deadline, stop)) {
      context_.reset();  // a late answer must not meet the next request
      return RedisReply(nullptr);
    }
    ALLOT_TRY(limitWaits(timeLeft(deadline)));
  }
  return receive(deadline, most_bytes);
}

Result<RedisReply> RedisConnection::exchange(const Arguments& arguments) {
  auto reply = exchange(arguments, 0, kMostReplyBytes);
  if (reply && reply->isMissing()) return unavailable(kTooLarge);
  return reply;
}

void RedisConnection::report(std::string_view command, const Result<RedisReply>& reply,
                             std::optional<double> seconds) const {
  if (observer_ == nullptr) return;
  const RequestOutcome outcome = !reply                    ? RequestOutcome::kUnavailable
                                 : reply->view().isError() ? RequestOutcome::kError
                                                           : RequestOutcome::kOk;
  observer_->requested(command, outcome, seconds);
}

Result<RedisReply> RedisConnection::observed(std::string_view command, const Arguments& arguments) {
  const auto start = Clock::now();
  auto reply = exchange(arguments);
  report(command, reply, std::chrono::duration<double>(Clock::now() - start).count());
  return reply;
}

Result<RedisReply> RedisConnection::call(const Arguments& arguments) {
  ALLOT_ASSIGN(RedisReply reply, observed(arguments.at(0), arguments));
  if (reply.view().isError()) return refused(reply.view().text(), arguments.at(0));
  allowed_.emplace(arguments.at(0));
  return reply;
}

Result<std::string> RedisConnection::wait(const std::string& stream, const std::string& after,
                                          uint64_t block_ms, const std::function<bool()>& stop) {
  bool stopped = false;
  std::function<bool()> ask;
  if (stop) ask = [&] { return stopped = stop(); };
  const std::string block = std::to_string(block_ms);
  const auto reply = exchange({"XREAD", "COUNT", "1", "BLOCK", block, "STREAMS", stream, after},
                              block_ms, kMostWakeUpBytes, ask);
  report("XREAD", reply, std::nullopt);
  if (!reply) return tl::unexpected(reply.error());
  if (stopped) return "";
  if (reply->isMissing()) return "large";
  if (reply->view().isError()) return refused(reply->view().text(), "XREAD");
  if (reply->view().isNil()) return "";
  const std::string_view id = reply->view()[0][1][0][0].text();
  return std::string(id.empty() ? "unknown" : id);
}

Result<RedisReply> RedisConnection::run(const RedisScript& script, const Arguments& keys,
                                        const Arguments& arguments) {
  const std::string key_count = std::to_string(keys.size());
  Arguments words = {"EVALSHA", script.sha1, key_count};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto start = Clock::now();
  auto answer = exchange(words);
  if (answer && answer->view().isError() && answer->view().text().starts_with("NOSCRIPT")) {
    words[0] = "EVAL";
    words[1] = script.text;
    answer = exchange(words);
  }
  report(script.name, answer, std::chrono::duration<double>(Clock::now() - start).count());
  ALLOT_ASSIGN(RedisReply reply, std::move(answer));
  if (reply.view().isError()) {
    auto error = refused(reply.view().text(), script.name);
    if (error.value().code == ErrorCode::kInternal)
      error.value().message += std::string(" (script ") + script.name + ")";
    return error;
  }
  allowed_.emplace(script.name);
  return reply;
}

}  // namespace allot
