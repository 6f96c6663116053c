#include "store/redis/redis_tls.h"

#if ALLOT_REDIS_TLS

#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>

namespace allot {
namespace {

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using Session = std::unique_ptr<SSL, decltype(&SSL_free)>;

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

// Makes the session check the certificate's host, which hiredis before 1.5 does not.
bool expectHost(SSL* session, const std::string& host) {
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str()) == 1) return true;
  return SSL_set1_host(session, host.c_str()) == 1 &&
         SSL_set_tlsext_host_name(session, host.c_str()) == 1;
}

}  // namespace

Status startTls(redisContext* context, const RedisAddress& address) {
  const auto broken = [&](const std::string& why) {
    return fail(ErrorCode::kUnavailable, "the store at " + address.shown +
                                             " cannot be spoken to over TLS (" + why +
                                             "): check its port, its certificate and ca");
  };
  ERR_clear_error();
  const Context settings(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (settings == nullptr) return broken(lastFault());
  SSL_CTX_set_min_proto_version(settings.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(settings.get(), SSL_VERIFY_PEER, nullptr);
  ALLOT_TRY(loadFiles(settings.get(), address));
  Session session(SSL_new(settings.get()), SSL_free);
  if (session == nullptr || !expectHost(session.get(), address.host)) return broken(lastFault());
  if (redisInitiateSSL(context, session.get()) != REDIS_OK) {
    const long verified = SSL_get_verify_result(session.get());
    return broken(verified == X509_V_OK ? std::string(context->errstr)
                                        : X509_verify_cert_error_string(verified));
  }
  (void)session.release();  // the connection owns it
  return {};
}

}  // namespace allot

#endif  // ALLOT_REDIS_TLS
