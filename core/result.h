#pragma once
// Result<T>: how allot's functions report the errors that a caller can meet.
//
// An Error is a code and one sentence that names the thing and the mend; the code is also what a
// process exits with (sysexits numbers, so that Kubernetes and shells can tell the cases apart).
// Values, no shared state: any thread.
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace allot {

enum class ErrorCode {
  kUsage = 64,        // bad configuration, bad input file: a person must mend it
  kData = 65,         // data that should have been well formed is not
  kUnavailable = 69,  // a service (the store) did not answer within its deadline
  kInternal = 70,     // a fault of ours or of the machine
  kIo = 74,           // the operating system refused a file operation
  kFenced = 75,       // another process took over; this one must go
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

// Leaves the current function with the error of `expr`, or goes on.
#define ALLOT_TRY(expr)                                                        \
  do {                                                                         \
    if (auto allot_status_ = (expr); !allot_status_)                           \
      return tl::unexpected<::allot::Error>(std::move(allot_status_.error())); \
  } while (false)

#define ALLOT_CONCAT_(a, b) a##b
#define ALLOT_CONCAT(a, b) ALLOT_CONCAT_(a, b)
// Declares `decl` from the value of the Result `expr`, or leaves with its error.
#define ALLOT_ASSIGN(decl, expr) ALLOT_ASSIGN_(ALLOT_CONCAT(allot_result_, __LINE__), decl, expr)
#define ALLOT_ASSIGN_(tmp, decl, expr)                                     \
  auto tmp = (expr);                                                       \
  if (!tmp) return tl::unexpected<::allot::Error>(std::move(tmp.error())); \
  decl = std::move(*tmp)
