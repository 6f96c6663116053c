#include "worker/model/jinja_parser.h"

#include <algorithm>

namespace allot::jinja {
namespace {

constexpr int kMaxNesting = 60;                     // of a template's brackets and blocks
constexpr int kMaxHeight = 200;                     // of the tree of its steps
constexpr size_t kMaxCharacters = size_t{1} << 20;  // of a template

// Makes a step that `op` runs with its parts, of which some may be missing.
template <typename Op>
Code lazy(Codes parts, Op op) {
  int depth = 1;
  for (const Code& part : parts) depth = std::max(depth, part ? part->depth + 1 : 1);
  if (depth > kMaxHeight) raise(FailureKind::kLimit, "its expressions are too deep");
  const auto run = [parts = std::move(parts), op](Run& run) {
    if constexpr (!std::is_void_v<decltype(op(run, parts))>) return op(run, parts);
    return op(run, parts), Value();
  };
  return std::make_shared<const Step>(Step{run, depth});
}

bool isDigit(char32_t c) { return c >= '0' && c <= '9'; }
bool isWord(char32_t c) {
  return isDigit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

constexpr std::string_view kConstants = "true false none True False None";

// Reads a template with Jinja's rules of white space and precedence. It reads characters: what a
// sign or a word means depends on the place alone.
class Parser {
 public:
  explicit Parser(std::string_view utf8) {
    const Text raw = textOf(utf8);
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] == '\r' && i + 1 < raw.size() && raw[i + 1] == '\n') continue;
      source_ += raw[i] == '\r' ? U'\n' : raw[i];
    }
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  // Throws Fault without a line: that is line().
  Code parse() {
    if (source_.size() > kMaxCharacters) raise(FailureKind::kLimit, "it is too long");
    Code all = scoped([&] { return statements({}); });
    for (const NamesPtr& names : frames_)
      std::erase_if(names->fresh, [&](const std::string& name) { return names->isAround(name); });
    return all;
  }

  // Returns the line of what was read last.
  int line() {
    size_t end = at_;
    while (end > counted_ && isSpace(source_[end - 1])) --end;
    for (; counted_ < end; ++counted_) line_ += source_[counted_] == '\n';
    return line_;
  }

 private:
  [[noreturn]] static void fail(const std::string& message) {
    raise(FailureKind::kSyntax, message);
  }
  [[noreturn]] void miss(const std::string& what) {
    space();
    const std::string word = taken(isWord),
                      found = word.empty() ? utf8Of(source_.substr(at_, 1)) : word;
    fail(what + " is missing" + (found.empty() ? "" : ", there is \"" + found + "\""));
  }

  char32_t at(size_t place) const { return place < source_.size() ? source_[place] : 0; }
  bool sees(std::string_view text, size_t place) const {
    for (size_t i = 0; i < text.size(); ++i) {
      if (at(place + i) != static_cast<unsigned char>(text[i])) return false;
    }
    return true;
  }
  void space() {
    while (at_ < source_.size() && isSpace(source_[at_])) ++at_;
  }
  // Returns true if the end of a tag is at a place, with its sign or without.
  bool ends(size_t place) const {
    if (at(place) == '-' || at(place) == '+') ++place;
    return sees("%}", place) || sees("}}", place);
  }
  // Returns true if this word or sign comes next.
  bool is(std::string_view text) {
    space();
    if (!sees(text, at_)) return false;
    const char32_t next = at(at_ + text.size());
    if (isWord(text[0])) return !isWord(next);
    if (text == "=") return next != '=';
    return (text != "-" && text != "+" && text != "%") || !ends(at_);
  }
  bool skip(std::string_view text) {
    if (!is(text)) return false;
    at_ += text.size();
    return true;
  }
  void expect(const std::string& text) {
    if (!skip(text)) miss("\"" + text + "\"");
  }
  void deeper() {
    if (++level_ > kMaxNesting) raise(FailureKind::kLimit, "it is nested too deep");
  }
  bool isName() {
    space();
    return isWord(at(at_)) && !isDigit(at(at_));
  }
  std::string taken(bool (*is)(char32_t)) {
    std::string out;
    for (; is(at(at_)); ++at_) out += static_cast<char>(source_[at_]);
    return out;
  }
  std::string name() {
    if (!isName()) miss("a name");
    return taken(isWord);
  }
  // Returns the first of the words that comes next, or nothing.
  std::string anyOf(const Words& words) {
    const auto found =
        std::find_if(words.begin(), words.end(), [&](const char* w) { return is(w); });
    return found == words.end() ? "" : *found;
  }

  // Passes the end of a tag if it is here: "%}" with a sign, and the white space that goes with it.
  bool skipEnd(std::string_view end) {
    const bool block = end != "}}";
    const char32_t sign = at(at_) == '-' || (at(at_) == '+' && block) ? at(at_) : 0;
    if (!sees(end, at_ + (sign != 0 ? 1 : 0))) return false;
    at_ += sign != 0 ? 3 : 2;
    if (sign == '-') {
      space();
    } else if (block && sign == 0 && at(at_) == '\n') {
      ++at_;
    }
    return true;
  }
  void end(const std::string& end) {
    space();
    if (!skipEnd(end)) miss("\"" + end + "\"");
  }

  // Passes the text up to the next tag and its opening, and adds the text to `parts`. Returns the
  // tag's second character, or 0 at the end of the template.
  char32_t text(Codes& parts) {
    size_t open = source_.find(U'{', at_);
    while (open != Text::npos && at(open + 1) != '%' && at(open + 1) != '{' && at(open + 1) != '#')
      open = source_.find(U'{', open + 1);
    open = std::min(open, source_.size());
    const char32_t kind = at(open + 1), sign = at(open + 2);
    size_t stop = open;
    if (kind != 0 && sign == '-') {
      while (stop > at_ && isSpace(source_[stop - 1])) --stop;
    } else if (kind != 0 && kind != '{' && sign != '+') {
      size_t begin = open;
      while (begin > at_ && source_[begin - 1] != '\n' && isSpace(source_[begin - 1])) --begin;
      if (begin == 0 || source_[begin - 1] == '\n') stop = begin;
    }
    if (stop > at_) {
      parts.push_back(lazy({}, [text = source_.substr(at_, stop - at_)](Run& run, const Codes&) {
        run.write(text);
      }));
    }
    at_ = std::min(open + (sign == '-' || sign == '+' ? 3 : 2), source_.size());
    return kind;
  }

  // Reads statements up to a tag that begins with one of `ends`, which stays.
  Code statements(const Words& ends) {
    deeper();
    Codes parts;
    for (;;) {
      const char32_t kind = text(parts);
      if (kind == 0) {
        if (ends.empty()) break;
        miss("the tag \"" + std::string(ends.back()) + "\"");
      }
      if (kind == '#') {
        for (; !skipEnd("#}"); ++at_) {
          if (at_ == source_.size()) fail("a comment has no end");
        }
      } else if (kind == '{') {
        parts.push_back(lazy({expression()}, [](Run& run, const Codes& codes) {
          run.write(str(run.work, run.eval(codes[0])));
        }));
        end("}}");
      } else if (!anyOf(ends).empty()) {
        break;
      } else {
        parts.push_back(statement());
        end("%}");
      }
    }
    --level_;
    return lazy(std::move(parts), [](Run& run, const Codes& codes) {
      for (const Code& code : codes) {
        if (run.flow == Flow::kOn) run.eval(code);
      }
    });
  }

  // Reads the rest of a tag and what is behind it.
  Code block(const Words& ends) {
    skip(":");
    end("%}");
    return statements(ends);
  }
  // The same up to the one end, which is passed. A break inside cannot leave a loop outside.
  Code closed(const char* last) {
    const int loops = std::exchange(loops_, 0);
    Code body = block({last});
    loops_ = loops;
    skip(last);
    return body;
  }

  // Reads a block with names of its own, and returns them.
  template <typename Read>
  NamesPtr framed(const Read& read) {
    frames_.push_back(std::make_shared<Names>(Names{names_}));
    const NamesPtr outer = std::exchange(names_, frames_.back());
    read();
    return std::exchange(names_, outer);
  }
  // Reads it and makes a step that runs it in a scope of its own.
  template <typename Read>
  Code scoped(const Read& read) {
    Code body;
    const NamesPtr names = framed([&] { body = read(); });
    return lazy({std::move(body)}, [names](Run& run, const Codes& codes) {
      return run.inside(run.scope, *names, [&] { return run.eval(codes[0]); });
    });
  }

  // Reads a name that a template sets.
  std::string newName() {
    std::string made = name();
    if (among(made, kConstants)) miss("a name that is no constant");
    if (made == "loop") fail("the variable loop is set");
    return made;
  }

  Code statement() {
    if (!isName()) fail("a tag has no name");
    const std::string word = name();
    if (word == "if") return branch();
    if (word == "set") return set();
    if (word == "for") return loop();
    if (word == "macro") return macro();
    if (word == "generation") return scoped([&] { return closed("endgeneration"); });
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail(word + " stands outside a loop");
      const Flow flow = word == "break" ? Flow::kBreak : Flow::kContinue;
      return lazy({}, [flow](Run& run, const Codes&) { run.flow = flow; });
    }
    fail("the statement " + word + " is not known");
  }

  Target target() {
    Target made;
    do {
      made.names.push_back(newName());
    } while (skip(","));
    return made;
  }

  Code set() {
    Target to = target();
    if (to.names.size() == 1 && skip(".")) to.attribute = name();
    const bool value = skip("=");
    Code code = value ? expression() : scoped([&] { return block({"endset"}); });
    if (!value) skip("endset");
    for (const std::string& one : to.names) {
      if (to.attribute.empty()) names_->set(one);
      names_->known.insert(one);
    }
    return lazy({std::move(code)}, [to, value](Run& run, const Codes& codes) {
      const Value made = value ? run.eval(codes[0]) : run.captured(codes[0]);
      if (run.flow == Flow::kOn) run.assign(to, made);
    });
  }

  Code loop() {
    const Target to = target();
    expect("in");
    Codes parts = {binary(0), nullptr, nullptr};
    framed([&] { parts[1] = skip("if") ? expression() : nullptr; });
    ++loops_;
    const NamesPtr names = framed([&] {
      names_->known.insert(to.names.begin(), to.names.end());
      names_->known.insert("loop");
      parts[2] = block({"else", "endfor"});
    });
    --loops_;
    if (is("else")) unsupported("a for with an else");
    skip("endfor");
    return lazy(std::move(parts),
                [to, names](Run& run, const Codes& codes) { run.runLoop(to, *names, codes); });
  }

  Code branch() {
    Codes parts;
    ++names_->ifs;
    do {
      parts.push_back(binary(0));
      parts.push_back(block({"elif", "else", "endif"}));
    } while (skip("elif"));
    if (skip("else")) parts.push_back(block({"endif"}));
    skip("endif");
    --names_->ifs;
    return lazy(std::move(parts), [](Run& run, const Codes& codes) {
      size_t i = 1;
      while (i < codes.size() && !truth(run.eval(codes[i - 1]))) i += 2;
      return i <= codes.size() ? run.eval(codes[i < codes.size() ? i : i - 1]) : Value();
    });
  }

  Code macro() {
    Macro macro{.name = newName()};
    names_->set(macro.name);
    macro.names = framed([&] {
      expect("(");
      while (!skip(")")) {
        if (!macro.parameters.empty()) expect(",");
        const std::string parameter = newName();
        if (std::count(macro.parameters.begin(), macro.parameters.end(), parameter) > 0)
          fail("the parameter " + parameter + " is there twice");
        macro.parameters.push_back(parameter);
        names_->known.insert(parameter);
        Code standard = skip("=") ? expression() : nullptr;
        if (!macro.parts.empty() && macro.parts.back() && !standard)
          fail("a parameter without a default stands behind one with a default");
        macro.parts.push_back(std::move(standard));
      }
      macro.parts.push_back(closed("endmacro"));
    });
    return lazy(macro.parts, [macro](Run& run, const Codes&) { run.define(macro); });
  }

  Code expression() {
    deeper();
    Code code = binary(0);
    while (skip("if")) {
      Codes parts = {binary(0), std::move(code)};
      parts.push_back(skip("else") ? expression() : nullptr);
      code = lazy(std::move(parts), [](Run& run, const Codes& codes) {
        if (truth(run.eval(codes[0]))) return run.eval(codes[1]);
        return codes[2] ? run.eval(codes[2]) : undefined("an if without an else");
      });
    }
    --level_;
    return code;
  }

  // Operators of this level of precedence and those that bind more tightly.
  Code binary(size_t level) {
    static const Words kLevels[] = {{"or"},
                                    {"and"},
                                    {},  // not
                                    {"==", "!=", "<=", ">=", "<", ">", "in", "not"},
                                    {"+", "-"},
                                    {"~"},
                                    {"*", "%"}};
    if (level == std::size(kLevels)) return unary();
    int negations = 0;
    while (level == 2 && skip("not")) ++negations;
    Code left = binary(level + 1);
    for (; negations > 0; --negations) left = negated(std::move(left));
    for (;;) {
      std::string op = anyOf(kLevels[level]);
      const size_t before = at_;
      if (!op.empty()) skip(op);
      if (op.empty() && level + 1 == std::size(kLevels) && is("/")) unsupported("a division");
      if (op.empty() || (op == "not" && !skip("in"))) return at_ = before, left;
      Codes parts = {std::move(left), binary(level + 1)};
      if (level < 2) {
        left = lazy(std::move(parts), [either = level == 0](Run& run, const Codes& codes) {
          Value first = run.eval(codes[0]);
          return truth(first) == either ? first : run.eval(codes[1]);
        });
      } else {
        left = made(std::move(parts),
                    [op](Run& run, const Values& v) { return operated(run.work, op, v[0], v[1]); });
        if (level != 3) continue;
        if (!anyOf(kLevels[level]).empty()) unsupported("a chain of comparisons");
        return left;
      }
    }
  }
  Code negated(Code code) {
    return made({std::move(code)}, [](Run&, const Values& v) { return boolean(!truth(v[0])); });
  }

  Code unary() {
    const bool negative = skip("-");
    Code code = postfix(primary());
    if (negative) {
      code = made({std::move(code)}, [](Run& run, const Values& v) {
        return operated(run.work, "-", integer(0), v[0]);
      });
    }
    while (is("|") || is("is") || is("(")) {
      const bool filter = skip("|"), test = !filter && skip("is"), no = test && skip("not");
      const std::string kind = filter ? "filter" : test ? "test" : "call";
      code = called(std::move(code), kind, filter || test ? name() : "");
      if (no) code = negated(std::move(code));
    }
    return code;
  }

  Code primary() {
    space();
    const char32_t c = at(at_);
    if (isDigit(c)) return constant(number());
    if (c == '\'' || c == '"') return constant(quoted(c));
    if (skip("(")) {
      bool comma = false;
      Codes parts = listed(")", &comma);
      return comma || parts.empty() ? collection(Kind::kTuple, std::move(parts)) : parts[0];
    }
    if (skip("[")) return collection(Kind::kList, listed("]"));
    if (skip("{")) {
      return made(listed("}"), [](Run& run, const Values& values) {
        const Value all = dict({});
        for (size_t i = 0; i < values.size(); i += 2) put(run.work, all, values[i], values[i + 1]);
        return dict(all.pairs());
      });
    }
    if (!isName()) miss("an expression");
    const std::string word = name();
    if (among(word, "none None")) return constant(none());
    if (among(word, kConstants)) return constant(boolean(among(word, "true True")));
    names_->known.insert(word);
    return made({}, [word](Run& run, const Values&) { return run.look(word); });
  }

  // Reads expressions with commas between them, and the closing bracket.
  Codes listed(std::string_view close, bool* comma = nullptr) {
    Codes parts;
    while (!skip(close)) {
      if (!parts.empty()) expect(",");
      if (comma != nullptr) *comma = *comma || !parts.empty();
      if (skip(close)) break;
      parts.push_back(expression());
      if (close != "}") continue;
      expect(":");
      parts.push_back(expression());
    }
    return parts;
  }

  Value number() {
    const std::string text = taken(isDigit);
    if (at(at_) == '.' && isDigit(at(at_ + 1))) unsupported("a number with a point");
    if (text.size() > 18 || (text[0] == '0' && text.size() > 1))
      unsupported("a number beyond 64 bits, or with a zero in front");
    return integer(std::stoll(text));
  }

  Value quoted(char32_t quote) {
    constexpr std::u32string_view kLetters = U"\\'\"nrt", kMeanings = U"\\'\"\n\r\t";
    Text out;
    for (++at_; at(at_) != quote; ++at_) {
      if (at_ >= source_.size()) fail("a text has no closing quote");
      if (source_[at_] != '\\') {
        out += source_[at_];
        continue;
      }
      const size_t known = kLetters.find(at(++at_));
      if (known == std::u32string_view::npos) unsupported("the escape \\" + utf8Of({at(at_)}));
      out += kMeanings[known];
    }
    ++at_;
    return string(std::move(out));
  }

  Code postfix(Code code) {
    for (;;) {
      if (skip(".")) {
        code = made({std::move(code)}, [name = name()](Run& run, const Values& values) {
          return attributeOf(run.work, values[0], name);
        });
      } else if (skip("[")) {
        code = subscript(std::move(code));
      } else if (is("(")) {
        code = called(std::move(code), "call", "");
      } else {
        return code;
      }
    }
  }

  Code subscript(Code code) {
    Codes parts = {std::move(code), is(":") ? nullptr : expression()};
    const bool slices = skip(":");
    bool backwards = false;
    if (slices) {
      parts.push_back(is(":") || is("]") ? nullptr : expression());
      if (skip(":") && !is("]")) {
        backwards = skip("-") && skip("1") && is("]") && !parts[1] && !parts[2];
        if (!backwards) unsupported("a slice with a step, other than [::-1]");
      }
    }
    expect("]");
    return made(std::move(parts), [slices, backwards](Run& run, const Values& values) {
      return slices ? slice(values[0], values[1], values[2], backwards)
                    : itemOf(run.work, values[0], values[1]);
    });
  }

  // Reads arguments in parentheses, if there are any, and makes a step of them and of `code`: a
  // call, or a filter or a test of this name.
  Code called(Code code, const std::string& kind, const std::string& word) {
    const bool filter = kind == "filter", test = kind == "test";
    Codes parts = {std::move(code)};
    std::vector<std::string> names;
    if (test && isName() && anyOf({"else", "or", "and"}).empty()) miss("\"(\"");
    for (bool open = skip("("); open && !skip(")");) {
      if (parts.size() > 1) expect(",");
      if (skip(")")) break;
      const size_t before = at_;
      std::string given = isName() ? name() : "";
      if (!given.empty() && skip("=")) {
        names.push_back(std::move(given));
      } else {
        at_ = before;
        if (!names.empty()) fail("an argument without a name stands behind one with a name");
      }
      parts.push_back(expression());
    }
    return made(std::move(parts), [=](Run& run, const Values& values) {
      Arguments arguments;
      const size_t named = values.size() - names.size();
      arguments.values.assign(values.begin() + 1, values.begin() + static_cast<ptrdiff_t>(named));
      for (size_t i = named; i < values.size(); ++i)
        arguments.named.emplace_back(names[i - named], values[i]);
      if (filter) return applyFilter(run.work, word, values[0], arguments);
      if (!test) return run.call(values[0], arguments);
      return boolean(applyTest(run.work, word, values[0], arguments));
    });
  }

  // Makes a step of an `op` of the values of its parts; a missing one is none.
  template <typename Op>
  Code made(Codes parts, Op op) {
    return lazy(std::move(parts), [line = line(), op](Run& run, const Codes& codes) {
      Values values;
      for (const Code& code : codes) values.push_back(code ? run.eval(code) : none());
      run.line = line;
      Value value = op(run, values);
      if (value.object) {
        run.work.spend(kObjectUnits + value.text().size() / 4 + 2 * value.items().size() +
                       4 * value.pairs().size());
      }
      return value;
    });
  }
  Code constant(const Value& value) {
    return lazy({}, [value](Run&, const Codes&) { return value; });
  }
  Code collection(Kind kind, Codes parts) {
    return made(std::move(parts), [kind](Run&, const Values& v) { return sequence(kind, v); });
  }

  Text source_;
  size_t at_ = 0, counted_ = 0;
  int line_ = 1;
  int level_ = 0;
  int loops_ = 0;
  NamesPtr names_ = nullptr;  // of the block that is read
  std::vector<NamesPtr> frames_ = {};
};

}  // namespace

Code parseTemplate(std::string_view source) {
  Parser parser(source);
  try {
    return parser.parse();
  } catch (Fault& fault) {
    fault.failure.line = parser.line();
    throw;
  }
}

}  // namespace allot::jinja
