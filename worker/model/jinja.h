#pragma once
// Template: executes the Jinja of published chat templates as transformers does (trim_blocks and
// lstrip_blocks, an immutable sandbox, break and continue, generation blocks).
//
// A template that it cannot execute as Jinja does is refused with its line; nothing is guessed.
// Templates are hostile: depth, steps and memory are bounded. Immutable; any thread.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace allot::jinja {

enum class FailureKind {
  kSyntax,       // not Jinja, or no form of it that is read here
  kUndefined,    // UndefinedError
  kError,        // Python's TypeError, ValueError and others
  kRaised,       // the template called raise_exception
  kUnsupported,  // Jinja may know it, this interpreter does not
  kLimit,        // too deep, too long, too many steps
};

struct Failure {
  FailureKind kind = FailureKind::kSyntax;
  int line = 0;         // of the template, from 1
  std::string message;  // a part of a sentence
};

// A stretch of the output. `data`: it came from the text of a message, not from the template.
struct Span {
  std::string text;
  bool data = false;
};

struct Step;

class Template {
 public:
  static tl::expected<Template, Failure> parse(std::string_view source);

  // Returns the output for variables: an object of what transformers passes. Texts named "content"
  // below "messages" are data. Reading a variable of `unknown` fails (kUnsupported): its value
  // is not known. strftime_now() is that of 26 July 2024, so that prompts are equal every day.
  tl::expected<std::vector<Span>, Failure> render(
      const nlohmann::ordered_json& variables, const std::vector<std::string>& unknown = {}) const;

 private:
  std::shared_ptr<const Step> root_;
};

}  // namespace allot::jinja
