#pragma once
// lookUpHost: the addresses of a host, within a deadline.
//
// getaddrinfo knows no deadline: with a name server that is away it takes tens of seconds. So it
// runs in a thread of its own, which may outlive the call; whoever asks for the same name meanwhile
// waits for the same answer, so that there is one such thread a name at most. An answer that nobody
// waited for is the next call's. Any thread.
#include <chrono>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// As numbers, of IPv4 or else of IPv6; at least one. kUnavailable, with nothing but the reason, if
// there is none or no answer in time.
Result<std::vector<std::string>> lookUpHost(const std::string& host,
                                            std::chrono::steady_clock::time_point deadline);

}  // namespace allot
