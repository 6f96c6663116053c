#pragma once
// lookUpHost: resolves the addresses of a host within a deadline. Any thread.
//
// getaddrinfo has no deadline: with a name server that is away it takes tens of seconds. It
// therefore runs in a separate thread, which may outlive the call. Concurrent calls for one name
// wait for the same thread. If a lookup finishes after its caller gave up, a call for that name
// within the next 30 s gets its result.
#include <chrono>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// Returns the numeric IPv4 addresses, or the IPv6 ones if there are none. kUnavailable, with only
// the reason as its message, if there is no address, or no answer in time.
Result<std::vector<std::string>> lookUpHost(const std::string& host,
                                            std::chrono::steady_clock::time_point deadline);

}  // namespace allot
