#pragma once
// SHA-256 (OpenSSL's) as lower-case hex. Pure functions, any thread.
#include <string>
#include <string_view>

namespace allot {

std::string sha256Hex(std::string_view bytes);

}  // namespace allot
