#include "worker/model/jinja_value.h"

#include <algorithm>
#include <optional>

#include "core/utf8.h"
#include "worker/model/nfc.h"

namespace allot::jinja {
namespace {

constexpr int kMaxDepth = 64;

bool sameCharacter(char32_t a, char32_t b) { return bare(a) == bare(b); }

bool hashable(const Value& value) {
  if (value.is(Kind::kTuple)) {
    return std::all_of(value.items().begin(), value.items().end(), hashable);
  }
  return !value.is(Kind::kList) && !value.is(Kind::kDict);
}

// As Python's repr, or as JSON's texts.
Text quoted(const Text& text, bool json) {
  const auto holds = [&](char32_t c) {
    return std::any_of(text.begin(), text.end(), [c](char32_t t) { return bare(t) == c; });
  };
  const char32_t quote = json || (holds(U'\'') && !holds(U'"')) ? U'"' : U'\'';
  const std::u32string_view known = json ? U"\n\r\t\b\f" : U"\n\r\t";
  Text out(1, quote);
  for (const char32_t marked : text) {
    const char32_t c = bare(marked), mark = marked & kData;
    const size_t named = known.find(c);
    const std::optional<bool> prints = json ? c >= 0x20 : isPrintable(c);
    if (named != std::u32string_view::npos || c == quote || c == U'\\') {
      out += {U'\\' | mark, (named == std::u32string_view::npos ? c : U"nrtbf"[named]) | mark};
    } else if (!prints) {
      unsupported("the text of a list or an object with a character that may need an escape");
    } else if (!*prints) {
      const int digits = json ? 4 : c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
      out += {U'\\' | mark, (digits == 2 ? U'x' : digits == 4 ? U'u' : U'U') | mark};
      for (int i = digits - 1; i >= 0; --i) out += U"0123456789abcdef"[c >> 4 * i & 15] | mark;
    } else {
      out += marked;
    }
  }
  return out += quote;
}

Value made(Kind kind, Object object) {
  const auto deeper = [&](const Value& inner) {
    if (inner.object) object.depth = std::max(object.depth, inner.object->depth + 1);
  };
  for (const Value& item : object.items) deeper(item);
  for (const auto& [key, value] : object.pairs) deeper(key), deeper(value);
  if (object.depth > kMaxDepth) raise(FailureKind::kLimit, "its values are too deep");
  Value value{.kind = kind};
  value.object = std::make_shared<Object>(std::move(object));
  return value;
}

}  // namespace

void raise(FailureKind kind, const std::string& message) { throw Fault{{kind, 0, message}}; }

void unsupported(const std::string& what) { raise(FailureKind::kUnsupported, what); }

void raiseUndefined(const Value& value) {
  raise(FailureKind::kUndefined, utf8Of(value.text()) + " is not defined");
}

Text textOf(std::string_view utf8, bool data) {
  const char32_t mark = data ? kData : 0;
  Text text;
  text.reserve(utf8.size());
  while (!utf8.empty()) {
    const size_t bytes = utf8Length(utf8);
    const auto first = static_cast<unsigned char>(utf8[0]);
    const char32_t c = bytes == 0   ? 0xdc00 + first
                       : bytes == 1 ? first
                                    : utf8Code(utf8.substr(0, bytes));
    text += c | mark;
    utf8.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return text;
}

std::string utf8Of(const Text& text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t marked : text) {
    const char32_t c = bare(marked);
    const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3f)); };
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xc0 | c >> 6), tail(0);
    } else if (c >= 0xdc80 && c <= 0xdcff) {
      out += static_cast<char>(c - 0xdc00);
    } else if (c < 0x10000) {
      out += static_cast<char>(0xe0 | c >> 12), tail(6), tail(0);
    } else {
      out += static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0);
    }
  }
  return out;
}

bool isSpace(char32_t marked) {
  const char32_t c = bare(marked);
  return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool equal(const Text& text, std::string_view ascii) {
  return std::equal(text.begin(), text.end(), ascii.begin(), ascii.end(),
                    [](char32_t a, char b) { return bare(a) == static_cast<unsigned char>(b); });
}

size_t findText(const Text& text, const Text& part, size_t from) {
  if (part.empty()) return from <= text.size() ? from : Text::npos;
  // Knuth, Morris and Pratt: hostile texts take no longer.
  std::vector<size_t> border(part.size(), 0);
  for (size_t i = 1, k = 0; i < part.size(); ++i) {
    while (k > 0 && !sameCharacter(part[i], part[k])) k = border[k - 1];
    border[i] = sameCharacter(part[i], part[k]) ? ++k : k;
  }
  for (size_t i = from, k = 0; i < text.size(); ++i) {
    while (k > 0 && !sameCharacter(text[i], part[k])) k = border[k - 1];
    if (sameCharacter(text[i], part[k])) ++k;
    if (k == part.size()) return i + 1 - k;
  }
  return Text::npos;
}

Value none() { return {.kind = Kind::kNone}; }
Value boolean(bool value) { return {.kind = Kind::kBool, .number = value}; }
Value integer(int64_t value) { return {.kind = Kind::kInt, .number = value}; }
Value string(Text text) { return made(Kind::kString, {.text = std::move(text)}); }
Value sequence(Kind kind, Values items) { return made(kind, {.items = std::move(items)}); }
Value dict(Pairs pairs) { return made(Kind::kDict, {.pairs = std::move(pairs)}); }
Value function(std::function<Value(Arguments&)> call) {
  return made(Kind::kFunction, {.call = std::move(call)});
}
Value undefined(const std::string& name) { return made(Kind::kUndefined, {.text = textOf(name)}); }

std::string typeName(const Value& value) {
  constexpr const char* kNames[] = {"Undefined", "NoneType",  "bool",     "int",       "str",
                                    "list",      "tuple",     "dict",     "dict view", "range",
                                    "generator", "Namespace", "function", "loop"};
  return kNames[static_cast<int>(value.kind)];
}

// Of what a string, list, tuple, dict, view or range holds.
bool sized(const Value& value) { return value.kind >= Kind::kString && value.kind <= Kind::kRange; }
size_t sizeOf(const Object& o) { return o.text.size() + o.items.size() + o.pairs.size(); }

bool truth(const Value& value) {
  if (sized(value)) return sizeOf(*value.object) != 0;
  return value.kind > Kind::kRange || value.number != 0;
}

bool equals(Work& work, const Value& a, const Value& b) {
  work.spend(1);
  if (a.isNumber() && b.isNumber()) return a.number == b.number;
  if (a.kind != b.kind) return false;
  if (a.kind <= Kind::kNone) return true;
  if (!sized(a)) return a.object == b.object;
  if (a.is(Kind::kView)) unsupported("a comparison of views of a dict");
  if (a.is(Kind::kDict)) {
    return a.pairs().size() == b.pairs().size() &&
           std::all_of(a.pairs().begin(), a.pairs().end(), [&](const auto& pair) {
             const Value* other = find(work, b, pair.first);
             return other != nullptr && equals(work, pair.second, *other);
           });
  }
  work.spend(a.text().size() / 4);
  return std::equal(a.text().begin(), a.text().end(), b.text().begin(), b.text().end(),
                    sameCharacter) &&
         std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                    [&](const Value& x, const Value& y) { return equals(work, x, y); });
}

bool less(Work& work, const Value& a, const Value& b) {
  work.spend(1);
  for (const Value* value : {&a, &b}) {
    if (value->is(Kind::kUndefined)) raiseUndefined(*value);
  }
  if (a.isNumber() && b.isNumber()) return a.number < b.number;
  if (a.kind != b.kind || a.kind < Kind::kString || a.kind > Kind::kTuple)
    raise(FailureKind::kError, "there is no order of " + typeName(a) + " and " + typeName(b));
  if (!a.is(Kind::kString)) unsupported("an order of lists");
  work.spend(std::min(a.text().size(), b.text().size()) / 4);
  return std::lexicographical_compare(a.text().begin(), a.text().end(), b.text().begin(),
                                      b.text().end(),
                                      [](char32_t x, char32_t y) { return bare(x) < bare(y); });
}

Value* find(Work& work, const Value& dict, const Value& key) {
  if (!hashable(key)) raise(FailureKind::kError, "a dict has no keys of type " + typeName(key));
  for (auto& [name, value] : dict.object->pairs) {
    if (equals(work, name, key)) return &value;
  }
  return nullptr;
}

void put(Work& work, const Value& dict, const Value& key, Value value) {
  if (Value* found = find(work, dict, key)) {
    *found = std::move(value);
  } else {
    dict.object->pairs.emplace_back(key, std::move(value));
  }
}

Values listOf(Work& work, const Value& value) {
  if (value.is(Kind::kUndefined)) return {};
  if (value.is(Kind::kLoop)) unsupported("iteration over the variable loop");
  if (!sized(value) && !value.is(Kind::kIterator))
    raise(FailureKind::kError, "a value of type " + typeName(value) + " cannot be iterated");
  if (value.is(Kind::kIterator) && std::exchange(value.object->read, true))
    unsupported("a second pass over the result of map, select or their like");
  work.spend(2 * sizeOf(*value.object));
  Values items = value.items();
  for (const char32_t c : value.text()) items.push_back(string(Text(1, c)));
  for (const auto& [key, inner] : value.pairs()) items.push_back(key);
  return items;
}

size_t lengthOf(const Value& value) {
  if (value.is(Kind::kUndefined)) return 0;
  if (value.is(Kind::kLoop)) unsupported("the length of the variable loop");
  if (!sized(value))
    raise(FailureKind::kError, "a value of type " + typeName(value) + " has no length");
  return sizeOf(*value.object);
}

Text str(Work& work, const Value& value) {
  if (value.is(Kind::kString)) return value.text();
  return value.is(Kind::kUndefined) ? Text() : repr(work, value);
}

Text repr(Work& work, const Value& value) {
  work.spend(1);
  if (value.is(Kind::kUndefined)) return U"Undefined";
  if (value.is(Kind::kNone)) return U"None";
  if (value.is(Kind::kBool)) return value.number != 0 ? U"True" : U"False";
  if (value.isNumber()) return textOf(std::to_string(value.number));
  if (value.is(Kind::kString)) {
    if (value.number == 1) unsupported("a list that holds safe text is printed");
    work.spend(value.text().size() / 4);
    return quoted(value.text(), false);
  }
  const bool tuple = value.is(Kind::kTuple), dict = value.is(Kind::kDict);
  if (!tuple && !dict && !value.is(Kind::kList))
    unsupported("a value of type " + typeName(value) + " is printed");
  Text out = dict ? U"{" : tuple ? U"(" : U"[";
  const auto comma = [&] { out += out.size() > 1 ? U", " : U""; };
  for (const Value& item : value.items()) comma(), out += repr(work, item);
  for (const auto& [key, inner] : value.pairs())
    comma(), out += repr(work, key) + U": " + repr(work, inner);
  work.spend(out.size() / 4);
  return out + (dict ? U"}" : !tuple ? U"]" : value.items().size() == 1 ? U",)" : U")");
}

Text toJson(Work& work, const Value& value, int64_t indent, int level) {
  work.spend(1);
  const auto scalar = [&](const Value& v) -> Text {
    if (v.is(Kind::kNone)) return U"null";
    if (v.is(Kind::kBool)) return v.number != 0 ? U"true" : U"false";
    if (v.isNumber()) return textOf(std::to_string(v.number));
    raise(FailureKind::kError, "JSON has no values of type " + typeName(v));
  };
  std::vector<Text> parts;
  if (value.is(Kind::kString)) {
    work.spend(value.text().size() / 4);
    return quoted(value.text(), true);
  }
  if (value.is(Kind::kDict)) {
    for (const auto& [key, inner] : value.pairs()) {
      parts.push_back(quoted(key.is(Kind::kString) ? key.text() : scalar(key), true) + U": " +
                      toJson(work, inner, indent, level + 1));
    }
  } else if (value.is(Kind::kList) || value.is(Kind::kTuple)) {
    for (const Value& item : value.items()) parts.push_back(toJson(work, item, indent, level + 1));
  } else {
    return scalar(value);
  }
  const auto lineEnd = [&](int depth) {
    return indent < 0 ? Text() : U'\n' + Text(static_cast<size_t>(indent * depth), U' ');
  };
  Text out(1, value.is(Kind::kDict) ? U'{' : U'[');
  for (size_t i = 0; i < parts.size(); ++i) {
    out += (i == 0 ? U"" : indent < 0 ? U", " : U",") + lineEnd(level + 1) + parts[i];
    work.spend(parts[i].size() / 4 + static_cast<size_t>(std::max<int64_t>(indent, 0)));
  }
  if (!parts.empty()) out += lineEnd(level);
  return out += value.is(Kind::kDict) ? U'}' : U']';
}

}  // namespace allot::jinja
