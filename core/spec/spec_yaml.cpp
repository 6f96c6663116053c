#include "core/spec/spec_yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <exception>
#include <regex>
#include <sstream>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/utf8.h"

namespace allot {
namespace {

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxValues = 100000;

bool isControl(unsigned char byte) { return byte < 0x20 || byte == 0x7f; }
// U+0080..U+009F, which some terminals obey.
bool isC1Control(std::string_view character) {
  return character.size() == 2 && character[0] == '\xc2' &&
         static_cast<unsigned char>(character[1]) < 0xa0;
}

// Returns the index of the first byte that is not UTF-8 or a control character other than tab and
// line ends; npos if there is none.
size_t firstOddByte(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const size_t length = utf8Length(text.substr(at));
    const bool space = byte == '\t' || byte == '\n' || byte == '\r';
    if (length == 0 || (isControl(byte) && !space)) return at;
    at += length;
  }
  return std::string_view::npos;
}

// Returns the index of the first line end that is one to some readers alone; npos if there is none.
size_t firstOddLineEnd(std::string_view text) {
  size_t first = text.find('\r');
  while (first < text.size() && text.substr(first).starts_with("\r\n")) {
    first = text.find('\r', first + 1);
  }
  for (const std::string_view end : {"\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"}) {
    first = std::min(first, text.find(end));
  }
  return first;
}

// Builds the tree from yaml-cpp's events, in one call of parseYaml. The builder refuses by an
// exception, which is the only way to stop yaml-cpp's parser.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(OtherReader other) : other_(other) {}
  YamlValue takeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse(mark, "a second YAML document starts here; keep one in a file");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string&) override { refuseAnchor(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuseAnchor(mark); }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check(mark, "", anchor);
    if (expectsKey()) refuse(mark, "a key is missing here");
    add(YamlValue{}, mark);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check(mark, tag, anchor);
    // yaml-cpp turns some escapes, as "\_", into single bytes that are not UTF-8.
    if (firstOddByte(value) != std::string_view::npos) {
      refuse(mark, doubleQuoted(value) + " has characters that are not text");
    }
    YamlValue scalar;
    scalar.kind = YamlValue::Kind::kScalar;
    scalar.text = value;
    if (other_ == OtherReader::kKubernetes) {
      scalar.style = tag == "?" ? YamlValue::Style::kPlain : YamlValue::Style::kQuoted;
    }
    if (expectsKey()) {
      setKey(mark, scalar);
    } else {
      add(std::move(scalar), mark);
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlValue::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlValue::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

 private:
  // A list or map that is still open.
  struct Frame {
    YamlValue value;
    YAML::Mark start;
    bool has_key = false;  // the last of value.keys waits for its value
    YAML::Mark key;        // of that key
    std::unordered_set<std::string> seen;
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, const std::string& what) {
    throw YAML::ParserException(mark, what);
  }
  [[noreturn]] static void refuseAnchor(const YAML::Mark& mark) {
    refuse(mark, "anchors (&) and aliases (*) are not accepted; write the value out");
  }

  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuseAnchor(mark);
    // yaml-cpp's "?" is a plain value, "!" a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!") {
      refuse(mark, "the tag " + doubleQuoted(tag) + " is not accepted; remove it");
    }
    if (++values_ > kMaxValues) {
      refuse(mark, "more than " + std::to_string(kMaxValues) + " values in one file");
    }
  }
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlValue::Kind kind) {
    check(mark, tag, anchor);
    if (frames_.size() >= kMaxDepth) {
      refuse(mark, "nested deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    frames_.emplace_back();
    frames_.back().value.kind = kind;
    frames_.back().start = mark;
  }
  void close() {
    const YAML::Mark start = frames_.back().start;
    YamlValue done = std::move(frames_.back().value);
    frames_.pop_back();
    // Not in open(): yaml-cpp reports a list that is never closed as a key, with a better message.
    if (expectsKey()) refuse(start, "a list or section cannot be a key; write a name");
    add(std::move(done), start);
  }
  bool expectsKey() const {
    return !frames_.empty() && frames_.back().value.kind == YamlValue::Kind::kMap &&
           !frames_.back().has_key;
  }
  void setKey(const YAML::Mark& mark, const YamlValue& key) {
    Frame& frame = frames_.back();
    frame.value.keys.push_back(key.text);
    frame.has_key = true;
    frame.key = mark;
    if (!frame.seen.insert(key.text).second) refuse(mark, path() + " is given twice; remove one");
    if (const std::string type = notTextToKubernetes(key); !type.empty()) {
      refuse(mark, path() + ": to Kubernetes the key " + escaped(key.text) + " is " + type +
                       "; write " + doubleQuoted(key.text) +
                       (type == "a number" ? ", and decimals with a point, as in 0.5" : ""));
    }
  }
  void add(YamlValue value, const YAML::Mark& mark) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return;
    }
    if (other_ == OtherReader::kKubernetes) {
      value.line =
          static_cast<size_t>((frames_.back().has_key ? frames_.back().key : mark).line) + 1;
    }
    frames_.back().value.items.push_back(std::move(value));
    frames_.back().has_key = false;
  }
  // Returns the path of the key that is being read.
  std::string path() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.value.kind != YamlValue::Kind::kMap) {
        path += "[" + std::to_string(frame.value.items.size()) + "]";
        continue;
      }
      if (!frame.has_key) continue;  // inside a list or section that stands where a key should
      if (!path.empty()) path += ".";
      path += escaped(frame.value.keys.back());
    }
    return path;
  }

  const OtherReader other_;
  YamlValue root_;
  std::vector<Frame> frames_;
  size_t documents_ = 0;
  size_t values_ = 0;
};

std::string position(const std::string& place, size_t line, size_t column) {
  return place + ":" + std::to_string(line) + ":" + std::to_string(column) + ": ";
}

Status checkText(const std::string& text, const std::string& place) {
  if (text.size() > kMostYamlBytes) {
    return badInput(place + ": has more than the " + std::to_string(kMostYamlBytes) +
                    " bytes that are read");
  }
  const size_t line_end = firstOddLineEnd(text);
  const size_t odd = std::min(firstOddByte(text), line_end);
  if (odd == std::string::npos) return {};
  size_t line = 1;
  size_t line_start = 0;
  for (size_t i = 0; i < odd; ++i) {
    if (text[i] != '\n') continue;
    ++line;
    line_start = i + 1;
  }
  const std::string where = position(place, line, odd - line_start + 1);
  if (text[odd] == '\r') {
    return badInput(where +
                    "a carriage return without a line feed ends this line; save the file "
                    "with the line ends of Unix");
  }
  if (odd == line_end) {
    return badInput(where + "Kubernetes reads the character U+" +
                    (text[odd] == '\xc2'       ? "0085"
                     : text[odd + 2] == '\xa8' ? "2028"
                                               : "2029") +
                    " as a line end; remove it");
  }
  return badInput(where + "the byte " + escaped(std::string_view(text).substr(odd, 1)) +
                  " is not text; save the file as UTF-8");
}

// Returns the likely cause of an error near this line, as the end of the sentence; "" if unknown.
std::string likelyCause(const std::string& text, size_t line) {
  size_t number = 0;
  std::vector<size_t> open;  // lines of brackets that have no end yet
  for (size_t at = 0; at < text.size() && number < line; ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view row = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const size_t indent = row.find_first_not_of(" \t");
    if (indent != std::string_view::npos && row.substr(0, indent).find('\t') != row.npos) {
      return ": line " + std::to_string(number + 1) +
             " begins with a tab, which YAML does not take; indent with spaces";
    }
    char quote = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      const char c = row[i];
      const bool starts = i == 0 || std::string_view(" [{,:").find(row[i - 1]) != row.npos;
      if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '#' && starts) {
        break;
      } else if ((c == '"' || c == '\'') && starts) {
        quote = c;
      } else if (c == '{' || c == '[') {
        open.push_back(number + 1);
      } else if ((c == '}' || c == ']') && !open.empty()) {
        open.pop_back();
      }
    }
  }
  if (open.empty() || open.back() >= line) return "";
  return ": the { or [ of line " + std::to_string(open.back()) + " is not closed before this line";
}

}  // namespace

const YamlValue* YamlValue::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size() && i < items.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

YamlValue* YamlValue::find(std::string_view key) {
  return const_cast<YamlValue*>(std::as_const(*this).find(key));
}

void YamlValue::put(const std::string& key, YamlValue value) {
  if (YamlValue* old = find(key)) {
    *old = std::move(value);
    return;
  }
  keys.push_back(key);
  items.push_back(std::move(value));
}

Result<YamlValue> parseYaml(const std::string& text, const std::string& place, OtherReader other) {
  ALLOT_TRY(checkText(text, place));
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    TreeBuilder builder(other);
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.takeRoot();
  } catch (const YAML::Exception& error) {
    const bool known = !error.mark.is_null();
    const auto line = known ? static_cast<size_t>(error.mark.line) + 1 : 1;
    const auto column = known ? static_cast<size_t>(error.mark.column) + 1 : 1;
    return badInput(position(place, line, column) + escaped(error.msg, 300) +
                    likelyCause(text, line));
  } catch (const std::exception& error) {
    return badInput(place + ": cannot be read as YAML: " + escaped(error.what(), 300));
  }
}

std::string notTextToKubernetes(const YamlValue& scalar) {
  constexpr size_t kLongestNumber = 400;  // a longer one is beyond a double, and so a text
  static const std::regex booleans(
      "y|Y|yes|Yes|YES|on|On|ON|true|True|TRUE|n|N|no|No|NO|off|Off|OFF|false|False|FALSE");
  static const std::regex numbers(
      "[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|"
      "(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)([eE][-+]?[0-9]+)?|\\.(inf|Inf|INF))|"
      "\\.(nan|NaN|NAN)");
  if (scalar.style != YamlValue::Style::kPlain || scalar.text.size() > kLongestNumber) return "";
  if (std::regex_match(scalar.text, booleans)) return "a boolean";
  std::string digits =
      scalar.text;  // Kubernetes' reader drops each _ that is not the first character
  if (!digits.starts_with('_')) std::erase(digits, '_');
  return std::regex_match(digits, numbers) ? "a number" : "";
}

std::string escaped(std::string_view text, size_t limit) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (out.size() >= limit) return out + "...";
    const auto byte = static_cast<unsigned char>(text[at]);
    const size_t length = isControl(byte) ? 0 : utf8Length(text.substr(at));
    if (length > 0 && !isC1Control(text.substr(at, length))) {
      out.append(text.substr(at, length));
      at += length;
      continue;
    }
    out += "\\x";
    out.push_back(kHex[byte >> 4]);
    out.push_back(kHex[byte & 15]);
    ++at;
  }
  return out;
}

std::string doubleQuoted(std::string_view text) { return "\"" + escaped(text) + "\""; }

std::string counted(uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace allot
