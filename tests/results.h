#pragma once
// GoogleTest and GoogleMock for the tests of namespace allot, and what a test wants of a Result:
// its value, or what it fails with. Any thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/result.h"

namespace allot {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using testing::UnorderedElementsAre;

// Returns the value. A failure ends the test, which says why and where.
template <typename T, typename E>
T valueOf(tl::expected<T, E> result, std::source_location where = std::source_location::current()) {
  if (result) return std::move(*result);
  throw std::runtime_error(std::string(where.file_name()) + ":" + std::to_string(where.line()) +
                           ": " + result.error().message);
}

template <typename T>
T valueOf(std::optional<T> value, std::source_location where = std::source_location::current()) {
  if (value) return std::move(*value);
  throw std::runtime_error(std::string(where.file_name()) + ":" + std::to_string(where.line()) +
                           ": there is no value");
}

// Returns the code of a failure, and nothing for a success.
template <typename T>
std::optional<ErrorCode> codeOf(const Result<T>& result) {
  if (result) return std::nullopt;
  return result.error().code;
}

// Returns the message of a failure, and "" for a success.
template <typename T, typename E>
std::string messageOf(const tl::expected<T, E>& result) {
  return result ? "" : result.error().message;
}

MATCHER(succeeds, "succeeds") {
  if (!arg) *result_listener << "which fails: " << arg.error().message;
  return static_cast<bool>(arg);
}

// Matches a failure by its message.
MATCHER_P(isError, message, "is an error") {
  if (arg) {
    *result_listener << "which succeeds";
    return false;
  }
  *result_listener << "which fails: " << arg.error().message << "; ";
  return testing::ExplainMatchResult(message, arg.error().message, result_listener);
}

MATCHER_P2(isError, code, message, "is an error") {
  if (!arg) *result_listener << "whose code is " << arg.error().exitCode() << ", ";
  return testing::ExplainMatchResult(isError(message), arg, result_listener) &&
         arg.error().code == code;
}

}  // namespace allot
