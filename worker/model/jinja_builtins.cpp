#include "worker/model/jinja_builtins.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <optional>

#include "worker/model/nfc.h"

namespace allot::jinja {
namespace {

// Reads the arguments of one call by place or by name.
class Reader {
 public:
  Reader(std::string what, Arguments& arguments) : what_(std::move(what)), all_(arguments) {}

  // Returns the next argument, or nullptr. An empty name: by place alone.
  const Value* next(const std::string& name = "") {
    const Value* found = place_ < all_.values.size() ? &all_.values[place_] : nullptr;
    ++place_;
    for (const auto& [given, value] : all_.named) {
      if (given != name) continue;
      if (found != nullptr) fail();
      ++named_;
      return &value;
    }
    return found;
  }
  const Value& required(const std::string& name = "") {
    const Value* value = next(name);
    if (value == nullptr) fail();
    return *value;
  }
  bool flag(const std::string& name) {
    const Value* value = next(name);
    return value != nullptr && truth(*value);
  }
  // Fails if arguments are left.
  void end() const {
    if (all_.values.size() > place_ || named_ != all_.named.size()) fail();
  }
  [[noreturn]] void fail() const { raise(FailureKind::kError, what_ + " has other arguments"); }

 private:
  std::string what_;
  Arguments& all_;
  size_t place_ = 0;
  size_t named_ = 0;
};

[[noreturn]] void unsupported(const std::string& what) { raise(FailureKind::kUnsupported, what); }

const Text& textArgument(const Value& value, const std::string& what) {
  if (!value.is(Kind::kString))
    raise(FailureKind::kError, what + " wants a text, not " + typeName(value));
  if (value.number == 1) unsupported(what + " of safe text");
  return value.text();
}

int64_t integerArgument(const Value& value, const std::string& what) {
  if (value.is(Kind::kUndefined)) raise(FailureKind::kError, what + " wants a number");
  if (!value.isNumber())
    raise(FailureKind::kError, what + " wants an integer, not " + typeName(value));
  return value.number;
}

Value text(Work& work, Text characters) {
  work.spend(characters.size() / 4);
  return string(std::move(characters));
}

Text lowered(const Text& text) {
  Text out;
  for (const char32_t marked : text) {
    const char32_t c = bare(marked), mark = marked & kData;
    if (c < 0x80) {
      out += (c >= 'A' && c <= 'Z' ? c + 32 : c) | mark;
    } else if (c == 0x3a3 || !nfcAvailable()) {
      unsupported("lower case of " + utf8Of(Text(1, c)));
    } else {
      for (const char32_t low : textOf(lowerCase(utf8Of(Text(1, c))))) out += low | mark;
    }
  }
  return out;
}

Text uppered(const Text& text) {
  Text out;
  for (const char32_t marked : text) {
    const std::optional<uint32_t> upper = upperCase(bare(marked));
    if (!upper) unsupported("upper case of " + utf8Of(Text(1, marked)));
    out += *upper | (marked & kData);
  }
  return out;
}

Text capitalised(const Text& text) {
  return text.empty() ? text : uppered(text.substr(0, 1)) + lowered(text.substr(1));
}

// Jinja's filter title: words begin behind blanks, - ( { [ and <.
Text titled(const Text& text) {
  const auto splits = [](char32_t c) {
    return isSpace(c) || std::u32string_view(U"-({[<").find(bare(c)) != Text::npos;
  };
  Text out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    while (end < text.size() && splits(text[end]) == splits(text[i])) ++end;
    out += capitalised(text.substr(i, end - i));
    i = end;
  }
  return out;
}

Text stripped(const Text& text, const Value* characters, bool left, bool right) {
  std::optional<Text> set;
  if (characters != nullptr && !characters->is(Kind::kNone))
    set = textArgument(*characters, "strip");
  const auto goes = [&](char32_t c) {
    if (!set) return isSpace(c);
    return std::any_of(set->begin(), set->end(), [c](char32_t s) { return bare(s) == bare(c); });
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end && goes(text[begin])) ++begin;
  while (right && end > begin && goes(text[end - 1])) --end;
  return text.substr(begin, end - begin);
}

Text replaced(Work& work, const Text& text, const Text& old, const Text& fresh, int64_t count) {
  Text out;
  size_t at = 0;
  for (; count != 0; --count) {
    const size_t found = findText(text, old, at);
    work.spend(1 +
               ((found == Text::npos ? text.size() : found) - at + old.size() + fresh.size()) / 4);
    if (found == Text::npos) break;
    out += text.substr(at, found - at) + fresh;
    at = found + old.size();
    if (old.empty()) {
      if (at >= text.size()) return out;
      out += text[at++];
    }
  }
  return at < text.size() ? out + text.substr(at) : out;
}

Values splitText(Work& work, const Text& text, const Value* by, int64_t most, bool from_right) {
  Values parts;
  if (by != nullptr && !by->is(Kind::kNone)) {
    const Text& separator = textArgument(*by, "split");
    if (separator.empty()) raise(FailureKind::kError, "split has an empty separator");
    std::vector<size_t> places;
    for (size_t at = 0; (at = findText(text, separator, at)) != Text::npos;
         at += separator.size()) {
      places.push_back(at);
      work.spend(2 + separator.size() / 4);
    }
    if (from_right && !places.empty()) {
      // Overlapping places are found from the other end.
      Text back(text.rbegin(), text.rend());
      const Text mirrored(separator.rbegin(), separator.rend());
      places.clear();
      for (size_t at = 0; (at = findText(back, mirrored, at)) != Text::npos;
           at += mirrored.size()) {
        places.push_back(text.size() - at - mirrored.size());
        if (most >= 0 && places.size() >= static_cast<size_t>(most)) break;
      }
      if (most == 0) places.clear();
      std::reverse(places.begin(), places.end());
    } else if (most >= 0 && places.size() > static_cast<size_t>(most)) {
      places.resize(static_cast<size_t>(most));
    }
    size_t at = 0;
    for (const size_t place : places) {
      parts.push_back(string(text.substr(at, place - at)));
      at = place + separator.size();
    }
    parts.push_back(string(text.substr(at)));
    return parts;
  }
  if (from_right && most >= 0) unsupported("rsplit at blanks");
  for (size_t at = 0;;) {
    while (at < text.size() && isSpace(text[at])) ++at;
    if (at == text.size()) return parts;
    size_t end = at;
    if (most >= 0 && parts.size() == static_cast<size_t>(most)) {
      parts.push_back(string(stripped(text.substr(at), nullptr, false, true)));
      return parts;
    }
    while (end < text.size() && !isSpace(text[end])) ++end;
    work.spend(2);
    parts.push_back(string(text.substr(at, end - at)));
    at = end;
  }
}

std::vector<Text> linesOf(const Text& text, bool keeps_ends) {
  std::vector<Text> lines;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const auto breaks = [&] {
      const char32_t c = bare(text[end]);
      return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
             c == 0x2029;
    };
    while (end < text.size() && !breaks()) ++end;
    const size_t stop = end;
    if (end < text.size())
      end +=
          bare(text[end]) == '\r' && end + 1 < text.size() && bare(text[end + 1]) == '\n' ? 2 : 1;
    lines.push_back(text.substr(at, (keeps_ends ? end : stop) - at));
    at = end;
  }
  return lines;
}

bool startsAt(const Text& text, const Text& part, size_t at) {
  return part.size() <= text.size() - at &&
         std::equal(part.begin(), part.end(), text.begin() + static_cast<std::ptrdiff_t>(at),
                    [](char32_t a, char32_t b) { return bare(a) == bare(b); });
}

bool startsOrEnds(const Text& text, const Value& with, bool starts) {
  if (with.is(Kind::kTuple)) {
    return std::any_of(with.items().begin(), with.items().end(),
                       [&](const Value& one) { return startsOrEnds(text, one, starts); });
  }
  const Text& part = textArgument(with, "startswith or endswith");
  return part.size() <= text.size() && startsAt(text, part, starts ? 0 : text.size() - part.size());
}

Text joined(Work& work, const Text& separator, const std::vector<Text>& parts) {
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    work.spend(1 + (separator.size() + parts[i].size()) / 4);
    out += (i > 0 ? separator : Text()) + parts[i];
  }
  return out;
}

// The methods of str.
Value callTextMethod(Work& work, const std::string& name, const Value& self, Arguments& arguments) {
  const Text& own = textArgument(self, name);
  Reader read(name, arguments);
  work.spend(own.size() / 4);
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Value* characters = read.next();
    read.end();
    return text(work, stripped(own, characters, name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") {
    const Value* by = read.next("sep");
    const Value* most = read.next("maxsplit");
    read.end();
    return sequence(Kind::kList,
                    splitText(work, own, by, most == nullptr ? -1 : integerArgument(*most, name),
                              name == "rsplit"));
  }
  if (name == "splitlines") {
    const bool keeps = read.flag("keepends");
    read.end();
    Values lines;
    for (Text& line : linesOf(own, keeps)) lines.push_back(text(work, std::move(line)));
    work.spend(lines.size());
    return sequence(Kind::kList, std::move(lines));
  }
  if (name == "startswith" || name == "endswith") {
    const Value& with = read.required();
    if (read.next() != nullptr) unsupported(name + " with a place");
    read.end();
    return boolean(startsOrEnds(own, with, name == "startswith"));
  }
  if (name == "replace") {
    const Text& old = textArgument(read.required(), name);
    const Text& fresh = textArgument(read.required(), name);
    const Value* count = read.next();
    read.end();
    return text(work, replaced(work, own, old, fresh,
                               count == nullptr ? -1 : integerArgument(*count, name)));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Value& end = read.required();
    read.end();
    const Text& part = textArgument(end, name);
    const bool front = name == "removeprefix";
    if (!startsOrEnds(own, end, front)) return self;
    return text(work, front ? own.substr(part.size()) : own.substr(0, own.size() - part.size()));
  }
  if (name == "find" || name == "count") {
    const Text& part = textArgument(read.required(), name);
    if (read.next() != nullptr) unsupported(name + " with a place");
    read.end();
    if (name == "find") {
      const size_t at = findText(own, part);
      return integer(at == Text::npos ? -1 : static_cast<int64_t>(at));
    }
    if (part.empty()) return integer(static_cast<int64_t>(own.size()) + 1);
    int64_t count = 0;
    for (size_t at = 0; (at = findText(own, part, at)) != Text::npos; at += part.size(), ++count)
      work.spend(1 + part.size() / 4);
    return integer(count);
  }
  if (name == "join") {
    std::vector<Text> parts;
    for (const Value& part : listOf(work, read.required()))
      parts.push_back(textArgument(part, name));
    read.end();
    return text(work, joined(work, own, parts));
  }
  read.end();
  if (name == "upper") return text(work, uppered(own));
  if (name == "lower") return text(work, lowered(own));
  if (name == "capitalize") return text(work, capitalised(own));
  // title: words are runs of letters.
  Text out;
  bool inside = false;
  for (const char32_t c : own) {
    if (bare(c) >= 0x80) unsupported("title of text beyond ASCII");
    out += inside ? lowered(Text(1, c)) : uppered(Text(1, c));
    inside = (bare(c) | 0x20) >= 'a' && (bare(c) | 0x20) <= 'z';
  }
  return text(work, std::move(out));
}

Value callDictMethod(Work& work, const std::string& name, const Value& self, Arguments& arguments) {
  Reader read(name, arguments);
  if (name == "get") {
    const Value& key = read.required();
    const Value* standard = read.next();
    read.end();
    const Value* found = find(work, self, key);
    return found != nullptr ? *found : standard != nullptr ? *standard : none();
  }
  read.end();
  if (name == "copy") return self;
  Values items;
  for (const auto& [key, value] : self.pairs()) {
    work.spend(3);
    items.push_back(name == "keys"     ? key
                    : name == "values" ? value
                                       : sequence(Kind::kTuple, {key, value}));
  }
  return sequence(Kind::kView, std::move(items), textOf("dict_" + name));
}

bool among(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
}

// Returns a Python attribute of the value, or nothing if Python has none of this name.
std::optional<Value> pythonAttribute(Work& work, const Value& value, const std::string& name) {
  const auto method = [&](Value (*call)(Work&, const std::string&, const Value&, Arguments&)) {
    return function([&work, call, name, value](Arguments& arguments) {
      return call(work, name, value, arguments);
    });
  };
  if (name.starts_with("__")) unsupported("the attribute " + name);
  switch (value.kind) {
    case Kind::kString:
      if (among(name, {"strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "startswith",
                       "endswith", "replace", "removeprefix", "removesuffix", "find", "count",
                       "join", "upper", "lower", "capitalize", "title"})) {
        return method(callTextMethod);
      }
      if (among(name, {"casefold",    "center",    "encode",       "expandtabs", "format",
                       "format_map",  "index",     "isalnum",      "isalpha",    "isascii",
                       "isdecimal",   "isdigit",   "isidentifier", "islower",    "isnumeric",
                       "isprintable", "isspace",   "istitle",      "isupper",    "ljust",
                       "maketrans",   "partition", "rfind",        "rindex",     "rjust",
                       "rpartition",  "swapcase",  "translate",    "zfill"})) {
        unsupported("the method " + name + " of a text");
      }
      return std::nullopt;
    case Kind::kDict:
      if (among(name, {"get", "keys", "values", "items", "copy"})) return method(callDictMethod);
      if (among(name, {"clear", "pop", "popitem", "setdefault", "update"}))
        return undefined("the method " + name + " of a dict", true);
      if (name == "fromkeys") unsupported("the method fromkeys of a dict");
      return std::nullopt;
    case Kind::kList:
      if (among(name,
                {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"})) {
        return undefined("the method " + name + " of a list", true);
      }
      [[fallthrough]];
    case Kind::kTuple:
      if (among(name, {"index", "count", "copy"})) unsupported("the method " + name + " of a list");
      return std::nullopt;
    case Kind::kNamespace:
      if (const Value* found = find(work, value, string(textOf(name)))) return *found;
      return std::nullopt;
    case Kind::kLoop: {
      Value found = value.object->attribute(name);
      if (found.is(Kind::kUndefined) && !found.object) return std::nullopt;
      return found;
    }
    default:
      if (value.is(Kind::kFunction) ||
          among(name, {"as_integer_ratio",
                       "bit_count",
                       "bit_length",
                       "close",
                       "conjugate",
                       "count",
                       "denominator",
                       "from_bytes",
                       "fromhex",
                       "hex",
                       "imag",
                       "index",
                       "is_integer",
                       "isdisjoint",
                       "mapping",
                       "numerator",
                       "real",
                       "send",
                       "start",
                       "step",
                       "stop",
                       "throw",
                       "to_bytes"}) ||
          name.starts_with("gi_")) {
        unsupported("the attribute " + name + " of a value of type " + typeName(value));
      }
      return std::nullopt;
  }
}

std::optional<Value> itemAt(Work& work, const Value& value, const Value& key) {
  const auto at = [&](size_t size) -> std::optional<size_t> {
    if (!key.isNumber()) return std::nullopt;
    const auto end = static_cast<int64_t>(size);
    const int64_t index = key.number < 0 ? key.number + end : key.number;
    return index >= 0 && index < end ? std::optional(static_cast<size_t>(index)) : std::nullopt;
  };
  if (value.is(Kind::kString)) {
    if (const auto index = at(value.text().size())) return string(Text(1, value.text()[*index]));
  } else if (value.is(Kind::kList) || value.is(Kind::kTuple) || value.is(Kind::kRange)) {
    if (const auto index = at(value.items().size())) return value.items()[*index];
  } else if (value.is(Kind::kDict)) {
    if (key.is(Kind::kList) || key.is(Kind::kDict)) return std::nullopt;
    if (const Value* found = find(work, value, key)) return *found;
  }
  return std::nullopt;
}

// An attribute with dots, and numbers for places, as filters take it.
Value pathOf(Work& work, Value value, const Value& path) {
  if (!path.is(Kind::kString)) return itemOf(work, value, path);
  const Value dot = string(U".");
  const Values parts = splitText(work, path.text(), &dot, -1, false);
  for (const Value& part : parts) {
    const Text& name = part.text();
    const bool place = !name.empty() && name.size() < 18 &&
                       std::all_of(name.begin(), name.end(),
                                   [](char32_t c) { return bare(c) >= '0' && bare(c) <= '9'; });
    value = itemOf(work, value, place ? integer(std::stoll(utf8Of(name))) : part);
  }
  return value;
}

Value withoutCase(const Value& value) {
  return value.is(Kind::kString) ? string(lowered(value.text())) : value;
}

// What sort, unique, min and max compare.
Value keyOf(Work& work, const Value& value, const Value* attribute, bool case_sensitive) {
  const Value key =
      attribute == nullptr || attribute->is(Kind::kNone) ? value : pathOf(work, value, *attribute);
  return case_sensitive ? key : withoutCase(key);
}

void sortBy(Work& work, std::vector<std::pair<Value, Value>>& keyed, bool backwards) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return backwards ? less(work, b.first, a.first) : less(work, a.first, b.first);
  });
}

double floatOf(const Text& characters, bool& damaged) {
  const std::string plain = utf8Of(stripped(characters, nullptr, true, true));
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  damaged = plain.empty() || *end != 0 || plain.find_first_of("xXpP(") != std::string::npos;
  if (plain.find('_') != std::string::npos) unsupported("a number with underscores");
  return value;
}

std::optional<int64_t> wholeOf(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::fabs(value) > 9e18) unsupported("an integer beyond 64 bits");
  return static_cast<int64_t>(value);
}

Value toInteger(const Value& value, const Value& standard) {
  if (value.is(Kind::kUndefined)) raiseUndefined(value);
  if (value.isNumber()) return integer(value.number);
  std::optional<int64_t> whole;
  if (value.is(Kind::kFloat)) whole = wholeOf(value.real);
  if (value.is(Kind::kString)) {
    const Text plain = stripped(value.text(), nullptr, true, true);
    bool damaged = false;
    const double number = floatOf(plain, damaged);
    const bool digits =
        plain.size() < 18 && std::all_of(plain.begin(), plain.end(), [](char32_t c) {
          return (bare(c) >= '0' && bare(c) <= '9') || bare(c) == '-' || bare(c) == '+';
        });
    if (!damaged) whole = digits ? std::stoll(utf8Of(plain)) : wholeOf(number);
  }
  return whole ? integer(*whole) : standard;
}

Value rounded(const Value& value, int64_t digits, const std::string& method) {
  if (value.is(Kind::kUndefined)) raiseUndefined(value);
  if (!value.isNumber() && !value.is(Kind::kFloat))
    raise(FailureKind::kError, "round wants a number, not " + typeName(value));
  if (digits < 0 || digits > 15) unsupported("round to " + std::to_string(digits) + " digits");
  if (method != "common" && method != "ceil" && method != "floor")
    raise(FailureKind::kError, "round has no method " + method);
  if (method == "common") {
    if (value.isNumber()) return integer(value.number);
    char buffer[400];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value.real);
    return real(std::isfinite(value.real) ? std::strtod(buffer, nullptr) : value.real);
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = (value.isNumber() ? static_cast<double>(value.number) : value.real) * scale;
  if (!std::isfinite(scaled)) raise(FailureKind::kError, "round of a number that is not finite");
  return real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Text indented(const Value& value, const Value* width, bool first, bool blank) {
  if (value.is(Kind::kUndefined)) raiseUndefined(value);
  Text indent = U"    ";
  if (width != nullptr) {
    indent = width->is(Kind::kString) ? width->text()
                                      : Text(static_cast<size_t>(std::clamp<int64_t>(
                                                 integerArgument(*width, "indent"), 0, 1000)),
                                             U' ');
  }
  Text out;
  const std::vector<Text> lines = linesOf(textArgument(value, "indent") + U'\n', false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += U'\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += indent;
    out += lines[i];
  }
  return out;
}

Value json(Work& work, const Value& value, Arguments& arguments) {
  Reader read("tojson", arguments);
  const Value* ascii = read.next("ensure_ascii");
  const Value* indent = read.next("indent");
  const Value* separators = read.next("separators");
  JsonStyle style;
  style.sorted = read.flag("sort_keys");
  read.end();
  if (ascii != nullptr && truth(*ascii)) unsupported("tojson with ensure_ascii");
  if (indent != nullptr && !indent->is(Kind::kNone)) {
    style.indented = true;
    style.comma = U",";
    style.indent = indent->is(Kind::kString)
                       ? indent->text()
                       : Text(static_cast<size_t>(
                                  std::clamp<int64_t>(integerArgument(*indent, "tojson"), 0, 100)),
                              U' ');
  }
  if (separators != nullptr && !separators->is(Kind::kNone)) {
    if (!separators->is(Kind::kTuple) && !separators->is(Kind::kList))
      unsupported("tojson with such separators");
    if (separators->items().size() != 2) raise(FailureKind::kError, "tojson wants two separators");
    style.comma = textArgument(separators->items()[0], "tojson");
    style.colon = textArgument(separators->items()[1], "tojson");
  }
  return text(work, toJson(work, value, style));
}

Arguments behind(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.values.assign(arguments.values.begin() +
                         static_cast<std::ptrdiff_t>(std::min(count, arguments.values.size())),
                     arguments.values.end());
  rest.named = arguments.named;
  return rest;
}

// map, select and reject, of values or of their attributes: read when they are wanted.
Value lazily(Work& work, const std::string& name, const Value& input, const Arguments& arguments) {
  const bool attributes = name.ends_with("attr"), keeps = name.starts_with("select");
  const auto change = [&work, name, attributes, keeps, arguments](Value& item) {
    if (name == "map") {
      if (arguments.values.empty() && !arguments.named.empty()) {
        Arguments named = arguments;
        Reader read("map", named);
        const Value& path = read.required("attribute");
        const Value* standard = read.next("default");
        read.end();
        item = pathOf(work, item, path);
        if (item.is(Kind::kUndefined) && standard != nullptr && !standard->is(Kind::kNone))
          item = *standard;
        return true;
      }
      if (arguments.values.empty()) raise(FailureKind::kError, "map wants the name of a filter");
      Arguments rest = behind(arguments, 1);
      item = applyFilter(work, utf8Of(textArgument(arguments.values[0], name)), item, rest);
      return true;
    }
    if (attributes && arguments.values.empty())
      raise(FailureKind::kError, name + " wants the name of an attribute");
    const Value value = attributes ? pathOf(work, item, arguments.values[0]) : item;
    const size_t test = attributes ? 1 : 0;
    if (arguments.values.size() <= test) return truth(value) == keeps;
    Arguments rest = behind(arguments, test + 1);
    return applyTest(work, utf8Of(textArgument(arguments.values[test], name)), value, rest) ==
           keeps;
  };
  // A value that is empty is not looked at. What cannot be iterated fails when it is.
  return iterator(
      [&work, input, change, next = Next()](Value& out) mutable {
        if (!next) next = truth(input) ? iterate(input) : [](Value&) { return false; };
        while (next(out)) {
          work.spend(2);
          const bool kept = change(out);
          if (kept) return true;
        }
        return false;
      },
      input);
}

}  // namespace

bool isFilter(const std::string& name) {
  return among(name,
               {"abs",    "attr",       "batch",       "capitalize", "center",   "count",
                "d",      "default",    "dictsort",    "e",          "escape",   "filesizeformat",
                "first",  "float",      "forceescape", "format",     "groupby",  "indent",
                "int",    "items",      "join",        "last",       "length",   "list",
                "lower",  "map",        "max",         "min",        "pprint",   "random",
                "reject", "rejectattr", "replace",     "reverse",    "round",    "safe",
                "select", "selectattr", "slice",       "sort",       "string",   "striptags",
                "sum",    "title",      "tojson",      "trim",       "truncate", "unique",
                "upper",  "urlencode",  "urlize",      "wordcount",  "wordwrap", "xmlattr"});
}

bool isTest(const std::string& name) {
  return among(name, {"!=",          "<",         "<=",      "==",          ">",        ">=",
                      "boolean",     "callable",  "defined", "divisibleby", "eq",       "equalto",
                      "escaped",     "even",      "false",   "filter",      "float",    "ge",
                      "greaterthan", "gt",        "in",      "integer",     "iterable", "le",
                      "lessthan",    "lower",     "lt",      "mapping",     "ne",       "none",
                      "number",      "odd",       "sameas",  "sequence",    "string",   "test",
                      "true",        "undefined", "upper"});
}

Value applyFilter(Work& work, const std::string& name, const Value& input, Arguments& arguments) {
  work.spend(2);
  Reader read(name, arguments);
  if (input.is(Kind::kString) && input.number == 1 &&
      !among(name, {"safe", "string", "length", "count", "tojson"})) {
    unsupported("the filter " + name + " of safe text");
  }
  const auto own = [&] {
    Text characters = str(work, input);
    work.spend(characters.size() / 4);
    return characters;
  };
  if (name == "default" || name == "d") {
    const Value* standard = read.next("default_value");
    const bool if_false = read.flag("boolean");
    read.end();
    if (!input.is(Kind::kUndefined) && !(if_false && !truth(input))) return input;
    return standard == nullptr ? string({}) : *standard;
  }
  if (name == "tojson") return json(work, input, arguments);
  if (name == "map" || name == "select" || name == "reject" || name == "selectattr" ||
      name == "rejectattr") {
    return lazily(work, name, input, arguments);
  }
  if (name == "trim") {
    const Value* characters = read.next("chars");
    read.end();
    return text(work, stripped(own(), characters, true, true));
  }
  if (name == "replace") {
    const Text old = str(work, read.required("old")), fresh = str(work, read.required("new"));
    const Value* count = read.next("count");
    read.end();
    return text(
        work,
        replaced(work, own(), old, fresh,
                 count == nullptr || count->is(Kind::kNone) ? -1 : integerArgument(*count, name)));
  }
  if (name == "join") {
    const Value* by = read.next("d");
    const Value* attribute = read.next("attribute");
    read.end();
    const Text separator = by == nullptr ? Text() : str(work, *by);
    std::vector<Text> parts;
    for (const Value& item : listOf(work, input)) {
      parts.push_back(str(work, attribute == nullptr || attribute->is(Kind::kNone)
                                    ? item
                                    : pathOf(work, item, *attribute)));
      work.spend(parts.back().size() / 4);
    }
    return text(work, joined(work, separator, parts));
  }
  if (name == "indent") {
    const Value* width = read.next("width");
    const bool first = read.flag("first"), blank = read.flag("blank");
    read.end();
    work.spend(lengthOf(input));
    return text(work, indented(input, width, first, blank));
  }
  if (name == "int") {
    const Value* standard = read.next("default");
    if (read.next("base") != nullptr) unsupported("int with a base");
    read.end();
    return toInteger(input, standard == nullptr ? integer(0) : *standard);
  }
  if (name == "float") {
    const Value* standard = read.next("default");
    read.end();
    if (input.is(Kind::kUndefined)) raiseUndefined(input);
    if (input.is(Kind::kFloat)) return input;
    if (input.isNumber()) return real(static_cast<double>(input.number));
    bool damaged = true;
    const double value = input.is(Kind::kString) ? floatOf(input.text(), damaged) : 0;
    return !damaged ? real(value) : standard == nullptr ? real(0) : *standard;
  }
  if (name == "round") {
    const Value* digits = read.next("precision");
    const Value* method = read.next("method");
    read.end();
    return rounded(input, digits == nullptr ? 0 : integerArgument(*digits, name),
                   method == nullptr ? "common" : utf8Of(textArgument(*method, name)));
  }
  if (name == "sort" || name == "unique" || name == "min" || name == "max") {
    const bool backwards = name == "sort" && read.flag("reverse");
    const bool cases = read.flag("case_sensitive");
    const Value* attribute = read.next("attribute");
    read.end();
    if (attribute != nullptr && attribute->is(Kind::kString) &&
        findText(attribute->text(), U",") != Text::npos) {
      unsupported("the filter " + name + " with several attributes");
    }
    if (name == "unique") {
      return iterator(
          [&work, cases, input, path = attribute == nullptr ? none() : *attribute, next = Next(),
           seen = Pairs()](Value& out) mutable {
            if (!next) next = iterate(input);
            while (next(out)) {
              const Value key = keyOf(work, out, &path, cases);
              const size_t before = seen.size();
              put(work, seen, key, none());
              if (seen.size() > before) return true;
            }
            return false;
          },
          input);
    }
    std::vector<std::pair<Value, Value>> keyed;
    for (Value& item : listOf(work, input))
      keyed.emplace_back(keyOf(work, item, attribute, cases), item);
    if (name == "sort") {
      sortBy(work, keyed, backwards);
      Values items;
      for (auto& pair : keyed) items.push_back(std::move(pair.second));
      return sequence(Kind::kList, std::move(items));
    }
    if (keyed.empty()) return undefined("the " + name + " of nothing");
    size_t best = 0;
    for (size_t i = 1; i < keyed.size(); ++i) {
      if (name == "min" ? less(work, keyed[i].first, keyed[best].first)
                        : less(work, keyed[best].first, keyed[i].first))
        best = i;
    }
    return keyed[best].second;
  }
  if (name == "dictsort") {
    const bool cases = read.flag("case_sensitive");
    const Value* by = read.next("by");
    const bool backwards = read.flag("reverse");
    read.end();
    const std::string side = by == nullptr ? "key" : utf8Of(textArgument(*by, name));
    if (side != "key" && side != "value")
      raise(FailureKind::kError, "dictsort sorts by key or value");
    if (input.is(Kind::kUndefined)) raiseUndefined(input);
    if (!input.is(Kind::kDict))
      raise(FailureKind::kError, "dictsort wants a dict, not " + typeName(input));
    std::vector<std::pair<Value, Value>> keyed;
    for (const auto& [key, value] : input.pairs()) {
      work.spend(4);
      const Value& sorted = side == "key" ? key : value;
      keyed.emplace_back(cases ? sorted : withoutCase(sorted),
                         sequence(Kind::kTuple, {key, value}));
    }
    sortBy(work, keyed, backwards);
    Values items;
    for (auto& pair : keyed) items.push_back(std::move(pair.second));
    return sequence(Kind::kList, std::move(items));
  }
  if (name == "sum") {
    const Value* attribute = read.next("attribute");
    const Value* start = read.next("start");
    read.end();
    Value total = start == nullptr ? integer(0) : *start;
    for (const Value& item : listOf(work, input)) {
      const Value value = attribute == nullptr || attribute->is(Kind::kNone)
                              ? item
                              : pathOf(work, item, *attribute);
      if (value.is(Kind::kUndefined)) raiseUndefined(value);
      if (!total.isNumber() || !value.isNumber()) {
        if (total.isNumber() && !value.is(Kind::kFloat))
          raise(FailureKind::kError, "sum of a number and " + typeName(value));
        unsupported("the filter sum of such values");
      }
      if (__builtin_add_overflow(total.number, value.number, &total.number))
        unsupported("an integer beyond 64 bits");
      total.kind = Kind::kInt;
    }
    return total;
  }
  const bool known =
      among(name, {"upper", "lower", "title", "capitalize", "string", "safe", "length", "count",
                   "list", "first", "last", "items", "reverse", "abs"});
  if (!known) {
    raise(isFilter(name) ? FailureKind::kUnsupported : FailureKind::kError, "the filter " + name);
  }
  read.end();
  if (name == "upper") return text(work, uppered(own()));
  if (name == "lower") return text(work, lowered(own()));
  if (name == "title") return text(work, titled(own()));
  if (name == "capitalize") return text(work, capitalised(own()));
  if (name == "length" || name == "count") return integer(static_cast<int64_t>(lengthOf(input)));
  if (name == "list") return sequence(Kind::kList, listOf(work, input));
  if (name == "string" || name == "safe") {
    if (name == "string" && input.is(Kind::kString)) return input;
    Value out = text(work, own());
    out.number = name == "safe";
    return out;
  }
  if (name == "first") {
    Value item;
    return iterate(input)(item) ? item : undefined("the first of nothing");
  }
  if (name == "last" || name == "reverse") {
    if (name == "reverse" && input.is(Kind::kString)) {
      const Text characters = own();
      return string(Text(characters.rbegin(), characters.rend()));
    }
    const bool sized = !input.is(Kind::kIterator) && !input.is(Kind::kLoop);
    if (!sized && name == "last")
      raise(FailureKind::kError, "the last value of a " + typeName(input));
    Values items = listOf(work, input);
    if (name == "last") return items.empty() ? undefined("the last of nothing") : items.back();
    std::reverse(items.begin(), items.end());
    if (!sized) return sequence(Kind::kList, std::move(items));
    const Value reversed = sequence(Kind::kList, std::move(items));
    return iterator(iterate(reversed), reversed);
  }
  if (name == "items") {
    return iterator(
        [&work, input, next = Next()](Value& out) mutable {
          if (!next && !input.is(Kind::kDict) && !input.is(Kind::kUndefined))
            raise(FailureKind::kError, "items wants a dict, not " + typeName(input));
          Arguments no;
          if (!next)
            next =
                iterate(input.is(Kind::kDict) ? callDictMethod(work, "items", input, no) : input);
          return next(out);
        },
        input);
  }
  // abs
  if (input.is(Kind::kUndefined)) raiseUndefined(input);
  if (input.is(Kind::kFloat)) return real(std::fabs(input.real));
  return integer(std::abs(integerArgument(input, name)));
}

bool contains(Work& work, const Value& container, const Value& item) {
  if (container.is(Kind::kString)) {
    if (!item.is(Kind::kString))
      raise(FailureKind::kError, "a text cannot hold a value of type " + typeName(item));
    work.spend((container.text().size() + item.text().size()) / 4);
    return findText(container.text(), item.text()) != Text::npos;
  }
  if (container.is(Kind::kDict)) return find(work, container, item) != nullptr;
  const Next next = iterate(container);
  for (Value one; next(one);) {
    if (equals(work, one, item)) return true;
  }
  return false;
}

bool applyTest(Work& work, const std::string& name, const Value& value, Arguments& arguments) {
  work.spend(2);
  Reader read(name, arguments);
  const auto compared = [&](const std::string& op) {
    const Value other = read.required();
    read.end();
    if (op == "eq") return equals(work, value, other);
    if (op == "lt") return less(work, value, other);
    if (op == "gt") return less(work, other, value);
    // NaN is neither less nor greater nor equal.
    return (op == "le" ? less(work, value, other) : less(work, other, value)) ||
           equals(work, value, other);
  };
  constexpr std::array<std::array<const char*, 2>, 16> kCompared = {{{"==", "eq"},
                                                                     {"eq", "eq"},
                                                                     {"equalto", "eq"},
                                                                     {">", "gt"},
                                                                     {"gt", "gt"},
                                                                     {"greaterthan", "gt"},
                                                                     {"ge", "ge"},
                                                                     {">=", "ge"},
                                                                     {"<", "lt"},
                                                                     {"lt", "lt"},
                                                                     {"lessthan", "lt"},
                                                                     {"<=", "le"},
                                                                     {"le", "le"},
                                                                     {"!=", "ne"},
                                                                     {"ne", "ne"},
                                                                     {"", ""}}};
  for (const auto& [alias, op] : kCompared) {
    if (name == alias && std::string(op) == "ne") return !compared("eq");
    if (name == alias && name != "") return compared(op);
  }
  if (name == "in") {
    const Value container = read.required("seq");
    read.end();
    return contains(work, container, value);
  }
  if (name == "sameas") {
    const Value other = read.required("other");
    read.end();
    if (!other.is(Kind::kBool) && !other.is(Kind::kNone))
      unsupported("the test sameas with a value of type " + typeName(other));
    return value.kind == other.kind && value.number == other.number;
  }
  if (name == "divisibleby" || name == "odd" || name == "even") {
    const Value by = name == "divisibleby" ? read.required("num") : integer(2);
    read.end();
    for (const Value* one : {&value, &by}) {
      if (one->is(Kind::kUndefined)) raiseUndefined(*one);
      if (one->is(Kind::kFloat)) unsupported("the test " + name + " of a number that is not whole");
    }
    if (integerArgument(by, name) == 0) raise(FailureKind::kError, "a division by zero");
    const bool even = integerArgument(value, name) % by.number == 0;
    return name == "odd" ? !even : even;
  }
  const bool known = among(
      name, {"defined", "undefined", "none", "boolean", "true", "false", "integer", "float",
             "number", "string", "mapping", "iterable", "sequence", "callable", "lower", "upper"});
  if (!known) {
    raise(isTest(name) ? FailureKind::kUnsupported : FailureKind::kError, "the test " + name);
  }
  read.end();
  if (name == "lower" || name == "upper") {
    bool cased = false, other = false;
    for (const char32_t marked : str(work, value)) {
      const char32_t c = bare(marked);
      if (c >= 0x80) unsupported("the test " + name + " of text beyond ASCII");
      const bool low = c >= 'a' && c <= 'z', up = c >= 'A' && c <= 'Z';
      cased |= low || up;
      other |= name == "lower" ? up : low;
    }
    return cased && !other;
  }
  const Kind kind = value.kind;
  if (name == "defined") return kind != Kind::kUndefined;
  if (name == "undefined") return kind == Kind::kUndefined;
  if (name == "none") return kind == Kind::kNone;
  if (name == "boolean") return kind == Kind::kBool;
  if (name == "true" || name == "false")
    return kind == Kind::kBool && (value.number != 0) == (name == "true");
  if (name == "integer") return kind == Kind::kInt;
  if (name == "float") return kind == Kind::kFloat;
  if (name == "number") return value.isNumber() || kind == Kind::kFloat;
  if (name == "string") return kind == Kind::kString;
  if (name == "mapping") return kind == Kind::kDict;
  if (name == "callable")
    return kind == Kind::kFunction || kind == Kind::kUndefined || kind == Kind::kLoop;
  const bool indexed = kind == Kind::kUndefined || kind == Kind::kString || kind == Kind::kList ||
                       kind == Kind::kTuple || kind == Kind::kDict || kind == Kind::kRange;
  if (name == "sequence") return indexed;
  return indexed || kind == Kind::kView || kind == Kind::kIterator || kind == Kind::kLoop;
}

Value attributeOf(Work& work, const Value& value, const std::string& name) {
  if (value.is(Kind::kUndefined)) raiseUndefined(value);
  if (value.is(Kind::kDict) && name.starts_with("__")) unsupported("the attribute " + name);
  if (auto found = pythonAttribute(work, value, name)) return *found;
  if (auto found = itemAt(work, value, string(textOf(name)))) return *found;
  return undefined(name);
}

Value itemOf(Work& work, const Value& value, const Value& key) {
  if (value.is(Kind::kUndefined)) raiseUndefined(value);
  if (auto found = itemAt(work, value, key)) return *found;
  if (!key.is(Kind::kString)) return undefined("an item");
  const bool ascii =
      std::all_of(key.text().begin(), key.text().end(), [](char32_t c) { return bare(c) < 0x80; });
  if (ascii) {
    if (auto found = pythonAttribute(work, value, utf8Of(key.text()))) return *found;
  }
  return undefined(utf8Of(key.text()));
}

Value globalFunction(Work& work, const std::string& name) {
  if (name == "raise_exception") {
    return function([&work](Arguments& arguments) -> Value {
      Reader read("raise_exception", arguments);
      const Text message = str(work, read.required("message"));
      read.end();
      raise(FailureKind::kRaised, "it says: " + utf8Of(message));
    });
  }
  if (name == "strftime_now") {
    return function([](Arguments& arguments) {
      Reader read("strftime_now", arguments);
      const std::string format = utf8Of(textArgument(read.required("format"), "strftime_now"));
      read.end();
      std::tm day{};
      day.tm_mday = 26, day.tm_mon = 6, day.tm_year = 124, day.tm_wday = 5, day.tm_yday = 207;
      char buffer[256];
      if (format.empty()) return string({});
      const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &day);
      if (size == 0) unsupported("strftime_now with the format " + format);
      return string(textOf({buffer, size}));
    });
  }
  if (name == "range") {
    return function([&work](Arguments& arguments) {
      Reader read("range", arguments);
      int64_t begin = 0, end = integerArgument(read.required(), "range"), step = 1;
      if (const Value* second = read.next()) begin = end, end = integerArgument(*second, "range");
      if (const Value* third = read.next()) step = integerArgument(*third, "range");
      read.end();
      if (step == 0) raise(FailureKind::kError, "range has the step 0");
      Values items;
      constexpr int64_t kLargest = int64_t{1} << 62;
      for (const int64_t bound : {begin, end, step}) {
        if (bound > kLargest || bound < -kLargest) unsupported("a range of such numbers");
      }
      for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
        if (items.size() == 100'000)
          raise(FailureKind::kError, "a range of more than 100000 numbers");
        work.spend(1);
        items.push_back(integer(i));
        if (step > 0 ? end - i <= step : i - end <= -step) break;
      }
      const std::string third = step == 1 ? "" : ", " + std::to_string(step);
      return sequence(
          Kind::kRange, std::move(items),
          textOf("range(" + std::to_string(begin) + ", " + std::to_string(end) + third + ")"));
    });
  }
  if (name == "namespace" || name == "dict") {
    return function([&work, name](Arguments& arguments) {
      Pairs pairs;
      if (arguments.values.size() > 1) raise(FailureKind::kError, name + " has other arguments");
      if (!arguments.values.empty()) {
        if (!arguments.values[0].is(Kind::kDict)) unsupported(name + " of a value that is no dict");
        pairs = arguments.values[0].pairs();
      }
      for (const auto& [key, value] : arguments.named) put(work, pairs, string(textOf(key)), value);
      work.spend(2 * pairs.size());
      Value made = dict(std::move(pairs));
      if (name == "namespace") made.kind = Kind::kNamespace, made.object->depth = 1;
      return made;
    });
  }
  if (among(name, {"lipsum", "cycler", "joiner"})) unsupported("the function " + name);
  return undefined(name);
}

}  // namespace allot::jinja
