#pragma once
// Result<T>: the return type of functions whose errors a caller can handle. Values without shared
// state: any thread.
//
// An Error is a code and one sentence that names the thing and the remedy. The code is also the
// exit code of a process: sysexits numbers, so that Kubernetes and shells can tell the cases apart.
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace allot {

enum class ErrorCode {
  kUsage = 64,        // bad configuration, input or permissions: a person must act
  kData = 65,         // data that should have been well formed is not
  kUnavailable = 69,  // a service (the store) does not answer, or cannot serve now: try again
  kInternal = 70,     // a fault of the program or of the machine
  kIo = 74,           // the operating system refused a file operation
  kFenced = 75,       // another leader took over, or a run was replaced
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one sentence, no trailing newline

  int exitCode() const { return static_cast<int>(code); }
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}
inline tl::unexpected<Error> badInput(std::string message) {
  return fail(ErrorCode::kUsage, std::move(message));
}

}  // namespace allot

// Returns the error of the Result `expr` from the current function, if it has one.
#define ALLOT_TRY(expr)                                                        \
  do {                                                                         \
    if (auto allot_status_ = (expr); !allot_status_)                           \
      return tl::unexpected<::allot::Error>(std::move(allot_status_.error())); \
  } while (false)

#define ALLOT_CONCAT_(a, b) a##b
#define ALLOT_CONCAT(a, b) ALLOT_CONCAT_(a, b)
// Initialises or assigns `decl` with the value of the Result `expr`, or returns its error.
#define ALLOT_ASSIGN(decl, expr) ALLOT_ASSIGN_(ALLOT_CONCAT(allot_result_, __LINE__), decl, expr)
#define ALLOT_ASSIGN_(tmp, decl, expr)                                     \
  auto tmp = (expr);                                                       \
  if (!tmp) return tl::unexpected<::allot::Error>(std::move(tmp.error())); \
  decl = std::move(*tmp)
