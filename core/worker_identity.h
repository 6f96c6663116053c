#pragma once
// WorkerIdentity: the Ed25519 key pair that a worker signs with, and the check of its signatures.
//
// A worker's name ends in a fingerprint of its public key, so that a name belongs to a key without
// any list of keys. Values; any thread.
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace allot {

// Bytes of a signature: the public key (32), then Ed25519's signature (64).
inline constexpr size_t kSignatureBytes = 96;
inline constexpr size_t kIdentitySeedBytes = 32;

// What a signature is for. It holds for nothing else.
struct SignedFor {
  std::string_view kind;         // a word
  std::string_view run_id;       // without a line's end or a slash, as are the other two
  std::string_view spec_sha256;  // of the run's experiment, which may be replaced
};

class WorkerIdentity {
 public:
  // Makes the key pair of a seed, which is the private key: secret and random, except in tests.
  // kInternal if OpenSSL fails.
  // Requires: the seed has kIdentitySeedBytes.
  static Result<WorkerIdentity> make(const std::string& name, std::string_view seed);

  // Returns "<name>-<fingerprint>". The fingerprint is 16 characters: 80 bits of the SHA-256 of the
  // public key, in base 32 as in a ULID.
  const std::string& name() const { return name_; }
  std::string sign(const SignedFor& what, std::string_view bytes) const;

 private:
  WorkerIdentity(std::shared_ptr<evp_pkey_st> key, std::string public_key, std::string name)
      : key_(std::move(key)), public_key_(std::move(public_key)), name_(std::move(name)) {}

  std::shared_ptr<evp_pkey_st> key_;
  std::string public_key_;
  std::string name_;
};

// Checks that the worker of this name signed these bytes for this. kData with the reason if it did
// not.
Status checkSignature(std::string_view worker, const SignedFor& what, std::string_view bytes,
                      std::string_view signature);

}  // namespace allot
