#pragma once
// The files of k8s/ that objects are made from, embedded at build time (embed.cmake), so that there
// is nothing to find at run time. Constants, any thread.
#include <map>
#include <string_view>

namespace allot {

// By path: "base/worker.yaml".
const std::map<std::string_view, std::string_view>& manifestSources();

}  // namespace allot
