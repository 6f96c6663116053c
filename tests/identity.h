#pragma once
// The identities of workers in tests. Any thread.
#include <string>

#include "core/digest.h"
#include "core/worker_identity.h"

namespace allot {

// Returns the identity that this name always has.
inline WorkerIdentity identityOf(const std::string& name) {
  return WorkerIdentity::make(name, sha256Hex(name).substr(0, kIdentitySeedBytes)).value();
}

}  // namespace allot
