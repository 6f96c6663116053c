#pragma once
// PreTokenizer: cuts text into the pieces that BPE works on, by tokenizer.json's pre_tokenizer
// (Sequence, Split, Digits, ByteLevel). Immutable after parse; any thread. Private to
// worker/model/, owned by Tokenizer.
//
// The patterns of tokenizer.json are written for Oniguruma and run here in PCRE2. PCRE2 is
// configured so that the patterns of byte-level tokenizers mean the same in both, as 10^5 texts
// have shown (tests/golden/make_tokenizer_cases.py). Patterns that would differ are refused.
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

  // Reads the "pre_tokenizer" member of tokenizer.json. Errors (kUsage) name `file`.
  static Result<PreTokenizer> parse(const nlohmann::json& value, const std::string& file);

  // Calls `take` with each piece in order. Each run of bytes that are not UTF-8 is one piece. If
  // PCRE2 fails, as at its match limit, the rest of the text stays whole.
  void split(std::string_view text, const Take& take) const;

 private:
  enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };
  // A compiled pattern; copies share it.
  struct Pattern;
  struct Scratch;
  // A Split, Digits or ByteLevel: an optional space in front, then an optional split.
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

  // Returns matches and the text between them, covering all of the text.
  static std::vector<Span> findSpans(const Pattern& pattern, std::string_view text,
                                     Scratch& scratch);
  static std::vector<Span> applyBehavior(std::vector<Span> spans, Behavior behavior);
  void run(size_t step, std::string_view text, Scratch& scratch, const Take& take) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace allot
