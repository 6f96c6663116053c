#include "store/redis/redis_tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace allot {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr char kTooLate[] = "no complete answer within the time-out";
using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

std::string lastFault() {
  const char* why = ERR_reason_error_string(ERR_peek_last_error());
  return why == nullptr ? "unknown" : why;
}

tl::unexpected<Error> unusable(const char* what, const std::string& path) {
  return badInput(std::string(what) + " " + path + " of the store cannot be used (" + lastFault() +
                  "): it must be a PEM file that this process can read");
}

Status loadFiles(SSL_CTX* context, const RedisAddress& address) {
  if (address.ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else if (SSL_CTX_load_verify_locations(context, address.ca_file.c_str(), nullptr) != 1) {
    return unusable("authority", address.ca_file);
  }
  if (address.cert_file.empty()) return {};
  if (SSL_CTX_use_certificate_chain_file(context, address.cert_file.c_str()) != 1)
    return unusable("certificate", address.cert_file);
  if (SSL_CTX_use_PrivateKey_file(context, address.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1)
    return unusable("private key", address.key_file);
  return {};
}

// The name that the server's certificate must have.
const std::string& nameOf(const RedisAddress& address) {
  return address.name.empty() ? address.host : address.name;
}

bool expectName(SSL* session, const std::string& name) {
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), name.c_str()) == 1) return true;
  return SSL_set1_host(session, name.c_str()) == 1 &&
         SSL_set_tlsext_host_name(session, name.c_str()) == 1;
}

// Returns the sentence's end about a certificate that was not accepted.
std::string certificateFault(long fault, const RedisAddress& address) {
  switch (fault) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "shows a certificate that is not for " + nameOf(address) +
             ": connect by a name that is in it, or add name=, or give the server a certificate "
             "for this name";
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "shows a certificate that has expired: renew it and start Redis again";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "shows a certificate that is not valid yet: check this machine's clock and that of "
             "the machine that made it";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return "shows a certificate that no authority " +
             (address.ca_file.empty() ? "of this system" : "in " + address.ca_file) +
             " has signed: give the certificate of its authority with ca=";
    default:
      return std::string("shows a certificate that cannot be accepted (") +
             X509_verify_cert_error_string(fault) + "): give it another one";
  }
}

tl::unexpected<Error> noSession(const std::string& why) {
  return fail(ErrorCode::kUnavailable,
              "OpenSSL makes no session (" + why + "): see whether this machine is out of memory");
}

// Returns true if the last fault is what the other side has told us.
bool wasTold() { return ERR_GET_REASON(ERR_peek_last_error()) >= SSL_AD_REASON_OFFSET; }

}  // namespace

void RedisTls::Free::operator()(ssl_st* session) const { SSL_free(session); }

Result<RedisTls> RedisTls::start(int socket, const RedisAddress& address, Deadline deadline) {
  ERR_clear_error();
  const Context settings(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  RedisTls tls(nullptr, address.shown);
  if (settings == nullptr) return noSession(lastFault());
  SSL_CTX_set_min_proto_version(settings.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(settings.get(), SSL_VERIFY_PEER, nullptr);
  ALLOT_TRY(loadFiles(settings.get(), address));
  tls.session_.reset(SSL_new(settings.get()));
  SSL* const session = tls.session_.get();
  const int flags = fcntl(socket, F_GETFL);
  if (session == nullptr || !expectName(session, nameOf(address)) ||
      SSL_set_fd(session, socket) != 1)
    return noSession(lastFault());
  if (flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) != 0)
    return noSession(std::strerror(errno));
  const auto shaken = tls.repeat(deadline, [&] { return SSL_connect(session); });
  if (!shaken) return tls.handshakeError(address, shaken.error().message);
  return tls;
}

tl::unexpected<Error> RedisTls::handshakeError(const RedisAddress& address,
                                               const std::string& why) const {
  const long verified = SSL_get_verify_result(session_.get());
  if (verified != X509_V_OK)
    return fail(ErrorCode::kUnavailable,
                "the store at " + shown_ + " " + certificateFault(verified, address));
  if (wasTold()) return lost(why);
  return fail(ErrorCode::kUnavailable,
              "the store at " + shown_ + " does not answer in TLS (" + why +
                  "): check that Redis runs there with tls-port; without it write redis://");
}

tl::unexpected<Error> RedisTls::lost(const std::string& why) const {
  return fail(ErrorCode::kUnavailable,
              !answered_ && why != kTooLate
                  ? "the store at " + shown_ + " ended TLS (" + why +
                        "): if it wants to see a certificate that it trusts, add cert= "
                        "and key="
                  : "the store at " + shown_ + " does not answer (" + why +
                        "): check that Redis runs and can be reached from here");
}

Result<int> RedisTls::repeat(Deadline deadline, const std::function<int()>& operation) {
  for (;;) {
    ERR_clear_error();
    errno = 0;
    const int done = operation();
    if (done > 0) return done;
    const int why = SSL_get_error(session_.get(), done);
    if (why == SSL_ERROR_ZERO_RETURN || (why == SSL_ERROR_SYSCALL && errno == 0))
      return fail(ErrorCode::kUnavailable, "it closed the connection");
    if (why == SSL_ERROR_SYSCALL) return fail(ErrorCode::kUnavailable, std::strerror(errno));
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
      return fail(ErrorCode::kUnavailable, lastFault());
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return fail(ErrorCode::kUnavailable, kTooLate);
    pollfd socket{SSL_get_fd(session_.get()),
                  static_cast<short>(why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT), 0};
    poll(&socket, 1, static_cast<int>(left.count()));  // a signal interrupts it
  }
}

Status RedisTls::write(std::string_view bytes, Deadline deadline) {
  size_t written = 0;  // all: partial writes are off
  const auto done = repeat(
      deadline, [&] { return SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &written); });
  if (!done) return lost(done.error().message);
  return {};
}

Result<size_t> RedisTls::read(std::span<char> buffer, Deadline deadline) {
  size_t got = 0;
  const auto done = repeat(
      deadline, [&] { return SSL_read_ex(session_.get(), buffer.data(), buffer.size(), &got); });
  if (!done) return lost(done.error().message);
  answered_ = true;
  return got;
}

bool RedisTls::hasInput() {
  char byte = 0;
  size_t got = 0;
  ERR_clear_error();
  return SSL_peek_ex(session_.get(), &byte, 1, &got) == 1 ||
         SSL_get_error(session_.get(), 0) != SSL_ERROR_WANT_READ;
}

}  // namespace allot
