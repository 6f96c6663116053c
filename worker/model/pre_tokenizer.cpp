#include "worker/model/pre_tokenizer.h"

#include <algorithm>
#include <optional>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/utf8.h"
#include "worker/model/json_file.h"

namespace allot {
namespace {

constexpr int kDeepestSequence = 8;
constexpr size_t kMostSteps = 32;
constexpr const char* kSupported = "Sequence, Split, Digits, ByteLevel";
// What ByteLevel splits by when use_regex is true: GPT-2's words with their leading space.
constexpr const char* kWordPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Result<bool> requiredBool(const nlohmann::json& value, const char* key, const std::string& where) {
  if (member(value, key) == nullptr) return badInput(where + " lacks " + key);
  return boolMember(value, key, false, where);
}

// Returns the first of the constructs below, which Oniguruma, the pattern's intended engine, and
// PCRE2 read differently; "" if the pattern has none of them. GPT-2, Llama-3, Qwen2, DeepSeek and
// GPT-4o use none. With them, ids would not be those of the model's training.
std::string_view unlikeOniguruma(std::string_view pattern) {
  // Words (marks, fractions), \h (hex digit or blank), \R and \X (by Unicode version), \N (PCRE2:
  // all but \n).
  constexpr std::string_view kEscapes = "wWbBhHRXN";
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view two = pattern.substr(i, 2);
    if (pattern[i] == '\\') {
      if (two.size() == 2 && kEscapes.find(two[1]) != std::string_view::npos) return two;
      ++i;
    } else if (!in_class) {
      if (pattern.substr(i, 3) == "(?m") return pattern.substr(i, 3);  // . matches \n, or ^ and $
      in_class = pattern[i] == '[';
      // A ] that comes first is an ordinary character.
      if (in_class && pattern.substr(i + 1, 1) == "^") ++i;
      if (in_class && pattern.substr(i + 1, 1) == "]") ++i;
    } else if (pattern[i] == '[' || two == "&&") {  // classes within classes
      return pattern.substr(i, pattern[i] == '[' ? 1 : 2);
    } else if (pattern[i] == ']') {
      in_class = false;
    }
  }
  return {};
}

}  // namespace

struct PreTokenizer::Pattern {
  explicit Pattern(pcre2_code* compiled) : code(compiled) {}
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() { pcre2_code_free(code); }

  pcre2_code* code;
};

// The memory that one call of split() matches with. PCRE2 allows one thread at a time in it.
struct PreTokenizer::Scratch {
  // JIT code runs on the thread's stack within 32 KiB by default, too little for a long run of
  // white space under a pattern that backtracks.
  Scratch()
      : match(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, nullptr)) {
    if (context != nullptr && stack != nullptr) {
      pcre2_jit_stack_assign(context, nullptr, stack);
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }

  pcre2_match_data* match;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

Result<PreTokenizer> PreTokenizer::parse(const nlohmann::json& value, const std::string& file) {
  PreTokenizer result;
  if (!value.is_null()) ALLOT_TRY(result.add(value, file, 0));
  if (!result.byte_level_) {
    return badInput(file +
                    ": pre_tokenizer has no ByteLevel step; only byte-level tokenizers (GPT-2, "
                    "Llama-3, Qwen2 and the like) are supported");
  }
  return result;
}

Status PreTokenizer::add(const nlohmann::json& value, const std::string& file, int depth) {
  const std::string where = file + ": pre_tokenizer";
  const nlohmann::json* type = member(value, "type");
  if (type == nullptr) return badInput(where + " lacks type; supported: " + kSupported);
  if (*type == "Sequence") {
    const nlohmann::json* list = member(value, "pretokenizers");
    if (list == nullptr || !list->is_array()) {
      return badInput(where + ": a Sequence lacks the list pretokenizers");
    }
    if (depth == kDeepestSequence) return badInput(where + " is nested too deeply");
    for (const nlohmann::json& item : *list) ALLOT_TRY(add(item, file, depth + 1));
    return {};
  }
  if (byte_level_) return badInput(where + ": ByteLevel must be the last step");
  if (steps_.size() == kMostSteps) {
    return badInput(where + " has more than " + std::to_string(kMostSteps) + " steps");
  }
  Step step;
  if (*type == "Split") {
    ALLOT_ASSIGN(step, parseSplit(value, where + ": Split"));
  } else if (*type == "Digits") {
    ALLOT_ASSIGN(step, parseDigits(value, where + ": Digits"));
  } else if (*type == "ByteLevel") {
    ALLOT_ASSIGN(step, parseByteLevel(value, where + ": ByteLevel"));
    byte_level_ = true;
  } else {
    return badInput(where + " type " + described(*type) +
                    " is not supported; supported: " + kSupported);
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<PreTokenizer::Step> PreTokenizer::parseSplit(const nlohmann::json& value,
                                                    const std::string& where) {
  struct Name {
    const char* name;
    Behavior behavior;
  };
  static constexpr Name kNames[] = {{"Isolated", Behavior::kIsolated},
                                    {"Removed", Behavior::kRemoved},
                                    {"Contiguous", Behavior::kContiguous},
                                    {"MergedWithPrevious", Behavior::kMergedWithPrevious},
                                    {"MergedWithNext", Behavior::kMergedWithNext}};
  const nlohmann::json* behavior = member(value, "behavior");
  const auto* known = std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& name) {
    return behavior != nullptr && *behavior == name.name;
  });
  if (known == std::end(kNames)) {
    return badInput(where +
                    ": behavior: " + (behavior == nullptr ? "missing" : described(*behavior)) +
                    "; one of Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext");
  }
  const nlohmann::json* pattern = member(value, "pattern");
  const nlohmann::json* regex = pattern == nullptr ? nullptr : member(*pattern, "Regex");
  const nlohmann::json* text = pattern == nullptr ? nullptr : member(*pattern, "String");
  const nlohmann::json* given = regex != nullptr ? regex : text;
  if (given == nullptr || !given->is_string() || given->get_ref<const std::string&>().empty()) {
    return badInput(where + ": pattern must be {\"Regex\": \"...\"} or {\"String\": \"...\"}");
  }
  Step step;
  step.behavior = known->behavior;
  ALLOT_ASSIGN(step.invert, boolMember(value, "invert", false, where));
  ALLOT_ASSIGN(step.pattern,
               compile(given->get_ref<const std::string&>(), /*literal=*/given == text, where));
  return step;
}

Result<PreTokenizer::Step> PreTokenizer::parseDigits(const nlohmann::json& value,
                                                     const std::string& where) {
  ALLOT_ASSIGN(const bool individual, requiredBool(value, "individual_digits", where));
  Step step;
  step.behavior = individual ? Behavior::kIsolated : Behavior::kContiguous;
  ALLOT_ASSIGN(step.pattern, compile(R"(\p{N})", /*literal=*/false, where));
  return step;
}

Result<PreTokenizer::Step> PreTokenizer::parseByteLevel(const nlohmann::json& value,
                                                        const std::string& where) {
  Step step;
  ALLOT_ASSIGN(step.prefix_space, requiredBool(value, "add_prefix_space", where));
  ALLOT_ASSIGN(const bool use_regex, boolMember(value, "use_regex", true, where));
  if (use_regex) {
    ALLOT_ASSIGN(step.pattern, compile(kWordPattern, /*literal=*/false, where));
  }
  return step;
}

Result<std::shared_ptr<const PreTokenizer::Pattern>> PreTokenizer::compile(
    const std::string& pattern, bool literal, const std::string& where) {
  if (const std::string_view unlike = unlikeOniguruma(pattern); !literal && !unlike.empty()) {
    return badInput(where + ": the pattern " + inQuotes(pattern) + " uses " + inQuotes(unlike) +
                    ", which is not supported");
  }
  int error = 0;
  size_t position = 0;
  // As Oniguruma reads patterns: classes by Unicode, ^ and $ at every line, lines end with \n.
  const uint32_t options =
      PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (context != nullptr) pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options, &error, &position, context.get());
  if (code == nullptr) {
    PCRE2_UCHAR reason[256] = {};
    pcre2_get_error_message(error, reason, sizeof reason);
    return badInput(where + ": the pattern " + inQuotes(pattern) + " is not understood at byte " +
                    std::to_string(position) + ": " + reinterpret_cast<const char*>(reason));
  }
  // Without JIT (a hardened kernel may refuse it) matching is slower, no different.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return std::make_shared<const Pattern>(code);
}

std::vector<PreTokenizer::Span> PreTokenizer::findSpans(const Pattern& pattern,
                                                        std::string_view text, Scratch& scratch) {
  // PCRE2 takes U+180E for white space, which it is not since Unicode 6.3. It is replaced by
  // U+200B, which has its category and as many bytes.
  std::string changed;
  constexpr std::string_view kVowelSeparator = "\xe1\xa0\x8e";
  if (text.find(kVowelSeparator) != std::string_view::npos) {
    changed = text;
    for (size_t at = 0; (at = changed.find(kVowelSeparator, at)) != std::string::npos;) {
      changed.replace(at, kVowelSeparator.size(), "\xe2\x80\x8b");
    }
    text = changed;
  }

  std::vector<Span> spans;
  size_t done = 0;  // spans cover [0, done)
  std::optional<size_t> last_end;
  for (size_t start = 0; start <= text.size();) {
    const int found =
        pcre2_match(pattern.code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                    PCRE2_NO_UTF_CHECK, scratch.match, scratch.context);
    if (found < 0) break;
    const size_t* bounds = pcre2_get_ovector_pointer(scratch.match);
    const size_t begin = bounds[0];
    const size_t end = bounds[1];
    if (begin < done || end < begin) break;  // only a \K in a lookaround could do this
    if (begin == end && last_end == end) {
      // An empty match right after a match is none; look on one character later.
      start += start < text.size() ? std::max<size_t>(1, utf8Length(text.substr(start))) : 1;
      continue;
    }
    if (done < begin) spans.push_back({done, begin, false});
    spans.push_back({begin, end, true});
    last_end = start = done = end;
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
  return spans;
}

std::vector<PreTokenizer::Span> PreTokenizer::applyBehavior(std::vector<Span> spans,
                                                            Behavior behavior) {
  if (behavior == Behavior::kIsolated) return spans;
  if (behavior == Behavior::kRemoved) {
    std::erase_if(spans, [](const Span& span) { return span.match; });
    return spans;
  }
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(spans.begin(), spans.end());
  std::vector<Span> merged;
  bool previous_match = false;
  for (const Span& span : spans) {
    const bool joins = behavior == Behavior::kContiguous ? span.match == previous_match
                                                         : span.match && !previous_match;
    previous_match = span.match;
    if (!joins || merged.empty()) {
      merged.push_back(span);
    } else if (backwards) {
      merged.back().begin = span.begin;
    } else {
      merged.back().end = span.end;
    }
  }
  if (backwards) std::reverse(merged.begin(), merged.end());
  return merged;
}

void PreTokenizer::run(size_t step, std::string_view text, Scratch& scratch,
                       const Take& take) const {
  if (step == steps_.size()) {
    take(text);
    return;
  }
  const Step& current = steps_[step];
  std::string prefixed;
  if (current.prefix_space && text.front() != ' ') {
    prefixed.reserve(text.size() + 1);
    prefixed.push_back(' ');
    prefixed.append(text);
    text = prefixed;
  }
  if (current.pattern == nullptr) {
    run(step + 1, text, scratch, take);
    return;
  }
  std::vector<Span> spans = findSpans(*current.pattern, text, scratch);
  if (current.invert) {
    for (Span& span : spans) span.match = !span.match;
  }
  for (const Span& span : applyBehavior(std::move(spans), current.behavior)) {
    if (span.begin < span.end) {
      run(step + 1, text.substr(span.begin, span.end - span.begin), scratch, take);
    }
  }
}

void PreTokenizer::split(std::string_view text, const Take& take) const {
  Scratch scratch;
  if (scratch.match == nullptr) {  // out of memory
    take(text);
    return;
  }
  while (!text.empty()) {
    // A run of characters, or else a run of bytes that are none.
    const bool valid = utf8Length(text) != 0;
    size_t bytes = 0;
    while (bytes < text.size()) {
      const size_t length = utf8Length(text.substr(bytes));
      if ((length != 0) != valid) break;
      bytes += std::max<size_t>(1, length);
    }
    if (valid) {
      run(0, text.substr(0, bytes), scratch, take);
    } else {
      take(text.substr(0, bytes));
    }
    text.remove_prefix(bytes);
  }
}

}  // namespace allot
