#include "core/worker_identity.h"

#include <openssl/evp.h>

#include "core/digest.h"
#include "core/ulid.h"

namespace allot {
namespace {

constexpr size_t kPublicKeyBytes = 32;

const unsigned char* octets(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::string fingerprintOf(std::string_view public_key) {
  const std::string digits = sha256Hex(public_key);
  const auto bits40 = [&](size_t at) { return std::stoull(digits.substr(at, 10), nullptr, 16); };
  return makeUlid(0, bits40(0), bits40(10)).substr(10);
}

// Returns the text that is signed.
std::string signedText(const SignedFor& what, std::string_view bytes) {
  std::string text = "allot/";
  text.append(what.kind).append("/").append(what.run_id).append("/").append(what.spec_sha256);
  return text.append("\n").append(bytes);
}

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

}  // namespace

Result<WorkerIdentity> WorkerIdentity::make(const std::string& name, std::string_view seed) {
  const std::shared_ptr<EVP_PKEY> key(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, octets(seed), kIdentitySeedBytes),
      EVP_PKEY_free);
  std::string public_key(kPublicKeyBytes, '\0');
  size_t size = public_key.size();
  if (!key || EVP_PKEY_get_raw_public_key(
                  key.get(), reinterpret_cast<unsigned char*>(public_key.data()), &size) != 1) {
    return fail(ErrorCode::kInternal,
                "OpenSSL makes no Ed25519 key: see whether its configuration allows them");
  }
  const std::string full = name + "-" + fingerprintOf(public_key);
  return WorkerIdentity(key, std::move(public_key), full);
}

std::string WorkerIdentity::sign(const SignedFor& what, std::string_view bytes) const {
  const std::string text = signedText(what, bytes);
  std::string signature = public_key_;
  signature.resize(kSignatureBytes);
  size_t size = kSignatureBytes - kPublicKeyBytes;
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const bool made =
      context && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
      EVP_DigestSign(context.get(),
                     reinterpret_cast<unsigned char*>(signature.data()) + kPublicKeyBytes, &size,
                     octets(text), text.size()) == 1;
  return made ? signature : std::string();  // out of memory: the aggregator refuses it
}

Status checkSignature(std::string_view worker, const SignedFor& what, std::string_view bytes,
                      std::string_view signature) {
  if (signature.size() != kSignatureBytes) {
    return fail(ErrorCode::kData, "it has no worker's signature");
  }
  const std::string_view public_key = signature.substr(0, kPublicKeyBytes);
  if (!worker.ends_with("-" + fingerprintOf(public_key))) {
    return fail(ErrorCode::kData, "it is signed with another key than that of the worker it names");
  }
  const std::string text = signedText(what, bytes);
  const std::string_view of_text = signature.substr(kPublicKeyBytes);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, octets(public_key), kPublicKeyBytes),
      EVP_PKEY_free);
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const bool right =
      key && context &&
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
      EVP_DigestVerify(context.get(), octets(of_text), of_text.size(), octets(text), text.size()) ==
          1;
  if (right) return {};
  return fail(ErrorCode::kData, "its signature is of another content, kind, run or experiment");
}

}  // namespace allot
