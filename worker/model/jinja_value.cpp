#include <algorithm>

#include "core/utf8.h"
#include "worker/model/jinja_parts.h"
#include "worker/model/nfc.h"

namespace allot::jinja {
namespace {

constexpr int kMaxLevels = 64;

bool sameCharacter(char32_t a, char32_t b) { return bare(a) == bare(b); }

Value made(Kind kind, Object object) {
  const auto deeper = [&](const Value& inner) {
    if (inner.object) object.depth = std::max(object.depth, inner.object->depth + 1);
  };
  for (const Value& item : object.items) deeper(item);
  for (const auto& [key, value] : object.pairs) deeper(value);
  if (object.depth > kMaxLevels) raise(FailureKind::kLimit, "its values are too deep");
  return {.kind = kind, .object = std::make_shared<Object>(std::move(object))};
}

size_t sizeOf(const Object& o) { return o.text.size() + o.items.size() + o.pairs.size(); }

// As Python's repr, or as JSON's texts.
Text quoted(Work& work, const Text& text, bool json) {
  work.spend(text.size() / 4);
  const auto holds = [&](char32_t c) { return findText(text, Text(1, c)) != Text::npos; };
  const char32_t quote = json || (holds(U'\'') && !holds(U'"')) ? U'"' : U'\'';
  const std::u32string_view known = json ? U"\n\r\t\b\f" : U"\n\r\t";
  Text out(1, quote);
  for (const char32_t marked : text) {
    const char32_t c = bare(marked), mark = marked & kData;
    const size_t named = known.find(c);
    if (named != std::u32string_view::npos || c == quote || c == U'\\') {
      out += {U'\\' | mark, (named == std::u32string_view::npos ? c : U"nrtbf"[named]) | mark};
    } else if (c < ' ' || (!json && c >= 0x7f && !(nfcAvailable() && isLetterOrNumber(c)))) {
      unsupported("the text of a list or an object with a character that may need an escape");
    } else {
      out += marked;
    }
  }
  return out += quote;
}

// Returns "[", the parts with ", " between them, and "]".
Text listed(Work& work, char32_t open, const std::vector<Text>& parts, char32_t close) {
  Text out(1, open);
  for (const Text& part : parts) {
    work.spend(1 + part.size() / 4);
    out += (out.size() > 1 ? U", " : U"") + part;
  }
  return out += close;
}

// The text of a value inside another: JSON, or Python's repr.
Text written(Work& work, const Value& value, bool json) {
  work.spend(1);
  const bool tuple = value.is(Kind::kTuple);
  std::vector<Text> parts;
  switch (value.kind) {
    case Kind::kNone:
      return json ? U"null" : U"None";
    case Kind::kBool:
      return value.number != 0 ? (json ? U"true" : U"True") : (json ? U"false" : U"False");
    case Kind::kInt:
      return textOf(std::to_string(value.number));
    case Kind::kString:
      return quoted(work, value.text(), json);
    case Kind::kList:
    case Kind::kTuple:
      for (const Value& item : value.items()) parts.push_back(written(work, item, json));
      if (json || !tuple) return listed(work, U'[', parts, U']');
      if (parts.size() == 1) parts[0] += U',';
      return parts.size() == 1 ? U'(' + parts[0] + U')' : listed(work, U'(', parts, U')');
    case Kind::kDict:
      for (const auto& [key, inner] : value.pairs()) {
        const Text name = written(work, key, json);
        parts.push_back((json && !key.is(Kind::kString) ? U'"' + name + U'"' : name) + U": " +
                        written(work, inner, json));
      }
      return listed(work, U'{', parts, U'}');
    default:
      if (json) raise(FailureKind::kError, "JSON has no values of type " + typeName(value));
      if (value.is(Kind::kUndefined)) return U"Undefined";
      unsupported("a value of type " + typeName(value) + " is printed");
  }
}

int64_t arithmetic(char op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == '%') {
    if (b == 0) raise(FailureKind::kError, "a division by zero");
    result = b == -1 ? 0 : a % b;  // with the divisor's sign, as Python's
    return result != 0 && (result < 0) != (b < 0) ? result + b : result;
  }
  const bool over = op == '+'   ? __builtin_add_overflow(a, b, &result)
                    : op == '-' ? __builtin_sub_overflow(a, b, &result)
                                : __builtin_mul_overflow(a, b, &result);
  if (over) unsupported("an integer beyond 64 bits");
  return result;
}

bool compare(Work& work, const std::string& op, const Value& left, const Value& right) {
  if (op == "==" || op == "!=") return equals(work, left, right) == (op == "==");
  if (op == "in" || op == "not") return contains(work, right, left) == (op == "in");
  checkDefined(left), checkDefined(right);
  if (!left.isNumber() || !right.isNumber()) {
    raise(left.kind == right.kind ? FailureKind::kUnsupported : FailureKind::kError,
          "an order of " + typeName(left) + " and " + typeName(right));
  }
  const int64_t low = op[0] == '<' ? left.number : right.number;
  const int64_t high = op[0] == '<' ? right.number : left.number;
  return low < high || (op.size() == 2 && low == high);
}

}  // namespace

void raise(FailureKind kind, const std::string& message) { throw Fault{{kind, 0, message}}; }

void unsupported(const std::string& what) { raise(FailureKind::kUnsupported, what); }

bool among(std::string_view name, std::string_view words) {
  return (" " + std::string(words) + " ").find(" " + std::string(name) + " ") != std::string::npos;
}

Text textOf(std::string_view utf8, bool data) {
  Text text;
  text.reserve(utf8.size());
  while (!utf8.empty()) {
    const size_t bytes = utf8Length(utf8);
    const auto first = static_cast<unsigned char>(utf8[0]);
    const char32_t c = bytes == 0   ? 0xdc00 + first
                       : bytes == 1 ? first
                                    : utf8Code(utf8.substr(0, bytes));
    text += c | (data ? kData : 0);
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
Value string(std::string_view utf8) { return string(textOf(utf8)); }
Value sequence(Kind kind, Values items) { return made(kind, {.items = std::move(items)}); }
Value dict(Pairs pairs) { return made(Kind::kDict, {.pairs = std::move(pairs)}); }
Value function(Function call, Kind kind) { return made(kind, {.call = std::move(call)}); }
Value undefined(const std::string& name) { return made(Kind::kUndefined, {.text = textOf(name)}); }

std::string typeName(const Value& value) {
  constexpr const char* kNames[] = {"Undefined", "NoneType",  "bool",     "int",       "str",
                                    "list",      "tuple",     "dict",     "dict view", "range",
                                    "generator", "Namespace", "function", "loop"};
  return kNames[static_cast<int>(value.kind)];
}

void checkDefined(const Value& value) {
  if (value.is(Kind::kUndefined))
    raise(FailureKind::kUndefined, utf8Of(value.text()) + " is not defined");
}

bool truth(const Value& value) {
  if (value.isSized()) return sizeOf(*value.object) != 0;
  return value.kind > Kind::kRange || value.number != 0;
}

size_t lengthOf(const Value& value) {
  if (value.is(Kind::kUndefined)) return 0;
  if (value.is(Kind::kLoop)) unsupported("the length of the variable loop");
  if (!value.isSized())
    raise(FailureKind::kError, "a value of type " + typeName(value) + " has no length");
  return sizeOf(*value.object);
}

bool equals(Work& work, const Value& a, const Value& b) {
  work.spend(1);
  if (a.isNumber() && b.isNumber()) return a.number == b.number;
  if (a.kind != b.kind) return false;
  if (a.kind <= Kind::kNone) return true;
  if (!a.isSized()) return a.object == b.object;
  if (a.is(Kind::kView) || a.is(Kind::kDict)) unsupported("a comparison of dicts");
  work.spend(a.text().size() / 4);
  return std::equal(a.text().begin(), a.text().end(), b.text().begin(), b.text().end(),
                    sameCharacter) &&
         std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                    [&](const Value& x, const Value& y) { return equals(work, x, y); });
}

bool contains(Work& work, const Value& container, const Value& item) {
  if (container.is(Kind::kDict)) return find(work, container, item).has_value();
  if (!container.is(Kind::kString)) {
    const Values items = listOf(work, container);
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& one) { return equals(work, one, item); });
  }
  if (!item.is(Kind::kString))
    raise(FailureKind::kError, "a text cannot hold a value of type " + typeName(item));
  work.spend((container.text().size() + item.text().size()) / 4);
  return findText(container.text(), item.text()) != Text::npos;
}

std::optional<Value> find(Work& work, const Value& dict, const Value& key) {
  if (key.kind > Kind::kString) unsupported("a key of type " + typeName(key));
  for (const auto& [name, value] : dict.pairs()) {
    if (equals(work, name, key)) return value;
  }
  return std::nullopt;
}

void put(Work& work, const Value& dict, const Value& key, Value value) {
  if (key.kind > Kind::kString) unsupported("a key of type " + typeName(key));
  for (auto& [name, old] : dict.object->pairs) {
    if (equals(work, name, key)) return std::swap(old, value);
  }
  dict.object->pairs.emplace_back(key, std::move(value));
}

Values listOf(Work& work, const Value& value) {
  if (value.is(Kind::kUndefined)) return {};
  if (value.is(Kind::kLoop)) unsupported("iteration over the variable loop");
  if (!value.isSized() && !value.is(Kind::kIterator))
    raise(FailureKind::kError, "a value of type " + typeName(value) + " cannot be iterated");
  if (value.is(Kind::kIterator) && std::exchange(value.object->read, true))
    unsupported("a second pass over the result of selectattr");
  work.spend(2 * sizeOf(*value.object) + kObjectUnits * value.text().size());
  Values items = value.items();
  for (const char32_t c : value.text()) items.push_back(string(Text(1, c)));
  for (const auto& [key, inner] : value.pairs()) items.push_back(key);
  return items;
}

Text str(Work& work, const Value& value) {
  if (value.is(Kind::kString)) return value.text();
  return value.is(Kind::kUndefined) ? Text() : written(work, value, false);
}

Text toJson(Work& work, const Value& value) { return written(work, value, true); }

Value operated(Work& work, const std::string& op, const Value& left, const Value& right) {
  if (!among(op, "+ - * % ~")) return boolean(compare(work, op, left, right));
  const bool text = left.is(Kind::kString);
  if (op == "~" || (op == "+" && text && right.is(Kind::kString)))
    return string(str(work, left) + str(work, right));
  if (op == "%" && text) unsupported("the operator % of a text");
  checkDefined(left), checkDefined(right);
  if (left.isNumber() && right.isNumber())
    return integer(arithmetic(op[0], left.number, right.number));
  if (op == "+" && left.kind == right.kind && (left.is(Kind::kList) || left.is(Kind::kTuple))) {
    Values items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    return sequence(left.kind, std::move(items));
  }
  if (op == "*" && (left.isNumber() ? right : left).isSized())
    unsupported("a multiple of a value of type " + typeName(left.isNumber() ? right : left));
  raise(FailureKind::kError, typeName(left) + " " + op + " " + typeName(right));
}

Value slice(const Value& value, const Value& first, const Value& last, bool backwards) {
  checkDefined(value);
  const bool text = value.is(Kind::kString);
  if (value.is(Kind::kRange)) unsupported("a slice of a range");
  if (!text && !value.is(Kind::kList) && !value.is(Kind::kTuple))
    // Jinja raises an error, or takes it as undefined if all of the expression is constant.
    unsupported("a slice of a value of type " + typeName(value));
  const auto size = static_cast<int64_t>(lengthOf(value));
  const auto placed = [&](const Value& at, int64_t standard) {
    if (at.is(Kind::kNone)) return standard;
    if (!at.isNumber()) raise(FailureKind::kError, "a slice wants integers");
    const int64_t near = std::clamp<int64_t>(at.number, -size, size);
    return near < 0 ? near + size : near;
  };
  const int64_t begin = placed(first, 0), end = std::max(begin, placed(last, size));
  const auto part = [&](const auto& whole) {
    std::decay_t<decltype(whole)> copy(whole.begin() + begin, whole.begin() + end);
    if (backwards) std::reverse(copy.begin(), copy.end());
    return copy;
  };
  return text ? string(part(value.text())) : sequence(value.kind, part(value.items()));
}

}  // namespace allot::jinja
