#pragma once
// PreTokenizer: cuts text into the pieces that BPE works on, as tokenizer.json's pre_tokenizer says
// (Sequence, Split, Digits, ByteLevel).
//
// The patterns of tokenizer.json are written for Oniguruma and run here in PCRE2, set up so that
// what byte-level tokenizers use means the same in both (compared on 10^5 texts, see
// tests/golden/make_tokenizer_cases.py); what would not is refused. Immutable after parse; any
// thread. Private to worker/model/, owned by Tokenizer.
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace allot {

class PreTokenizer {
 public:
  using Take = std::function<void(std::string_view)>;

  // From the "pre_tokenizer" member of tokenizer.json; `file` names it in errors (kUsage).
  static Result<PreTokenizer> parse(const nlohmann::json& value, const std::string& file);

  // Calls take with each piece in order. Bytes that are not UTF-8 are pieces of their own, one for
  // each run of them. A pattern that exceeds PCRE2's match limit leaves the rest of its text whole.
  void split(std::string_view text, const Take& take) const;

 private:
  enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };
  // A compiled pattern; copies share it.
  struct Pattern;
  struct Scratch;
  // All kinds of pre-tokenizer are this: perhaps a space in front, then perhaps a split.
  struct Step {
    std::shared_ptr<const Pattern> pattern;  // null: no split
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    bool prefix_space = false;
  };
  struct Span {
    size_t begin;
    size_t end;
    bool match;
  };

  static Result<std::shared_ptr<const Pattern>> compile(const std::string& pattern, bool literal,
                                                        const std::string& where);
  static Result<Step> parseSplit(const nlohmann::json& value, const std::string& where);
  static Result<Step> parseDigits(const nlohmann::json& value, const std::string& where);
  static Result<Step> parseByteLevel(const nlohmann::json& value, const std::string& where);
  Status add(const nlohmann::json& value, const std::string& file, int depth);

  // Matches and the text between them, covering all of the text.
  static std::vector<Span> findSpans(const Pattern& pattern, std::string_view text,
                                     Scratch& scratch);
  static std::vector<Span> applyBehavior(std::vector<Span> spans, Behavior behavior);
  void run(size_t step, std::string_view text, Scratch& scratch, const Take& take) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace allot
