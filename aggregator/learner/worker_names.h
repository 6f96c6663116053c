#pragma once
// How sentences name workers, and what audits asked them. Pure functions; any thread.
#include <set>
#include <string>

#include "allot/v1/result.pb.h"
#include "core/printable.h"

namespace allot {

constexpr size_t kMostNamed = 3;  // in a sentence

inline std::string shortOf(const std::string& worker) { return printable(worker, 100); }

inline std::string namesOf(const std::set<std::string>& workers) {
  std::string text;
  size_t named = 0;
  for (const std::string& worker : workers) {
    if (++named > kMostNamed) break;
    text += (named == 1 ? "" : named == workers.size() ? " and " : ", ") + shortOf(worker);
  }
  return text + (workers.size() > kMostNamed ? " and others" : "");
}

inline std::string nameOf(const v1::AuditTask& task) {
  return task.has_unit() ? "evaluation unit " + printable(task.unit().unit_id(), 200)
                         : "ticket " + std::to_string(task.ticket());
}

}  // namespace allot
