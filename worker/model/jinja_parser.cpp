#include "worker/model/jinja_parser.h"

#include <algorithm>
#include <cstdlib>

#include "worker/model/jinja_builtins.h"

namespace allot::jinja {
namespace {

constexpr int kMaxDepth = 200;  // of expressions and statements in each other
constexpr size_t kMaxTokens = 400'000;

enum class Mark {
  kText,
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kNumber,
  kOperator,
  kEnd
};

struct Token {
  Mark mark;
  int line;
  std::string text;  // of a name or an operator
  Value value = {};  // of a text, string or number
};

bool isDigit(char32_t c) { return c >= '0' && c <= '9'; }
bool isWord(char32_t c) {
  return isDigit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

[[noreturn]] void failAt(int line, FailureKind kind, const std::string& message) {
  throw Fault{{kind, line, message}};
}

class Lexer {
 public:
  explicit Lexer(std::string_view utf8) {
    const Text raw = textOf(utf8);
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] == '\r' && i + 1 < raw.size() && raw[i + 1] == '\n') continue;
      source_ += raw[i] == '\r' ? U'\n' : raw[i];
    }
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  std::vector<Token> tokens() {
    while (at_ < source_.size()) data();
    add(Mark::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool sees(std::string_view text, size_t at) const {
    return at <= source_.size() && equal(source_.substr(at, text.size()), text);
  }
  bool sees(std::string_view text) const { return sees(text, at_); }
  void skipSpace() {
    while (at_ < source_.size() && isSpace(source_[at_])) advance(1);
  }
  void advance(size_t count) {
    for (; count > 0 && at_ < source_.size(); --count) line_ += source_[at_++] == '\n';
  }
  void add(Mark mark, std::string text, Value value = {}) {
    if (tokens_.size() == kMaxTokens) failAt(line_, FailureKind::kLimit, "it is too long");
    tokens_.push_back({mark, line_, std::move(text), std::move(value)});
  }
  [[noreturn]] void fail(const std::string& message) const {
    failAt(line_, FailureKind::kSyntax, message);
  }

  // The sign behind "{%" and its like: '-', '+' or 0.
  char32_t signAt(size_t at) const {
    const char32_t c = at < source_.size() ? source_[at] : 0;
    return c == '-' || c == '+' ? c : 0;
  }

  // Adds the text from at_ to `end`, where a tag with this sign begins.
  void addText(size_t end, char32_t sign, bool print) {
    size_t stop = end;
    if (sign == '-') {
      while (stop > at_ && isSpace(source_[stop - 1])) --stop;
    } else if (sign != '+' && !print) {
      size_t begin = end;
      while (begin > at_ && source_[begin - 1] != '\n') --begin;
      const bool blank = std::all_of(source_.begin() + static_cast<std::ptrdiff_t>(begin),
                                     source_.begin() + static_cast<std::ptrdiff_t>(end), isSpace);
      if ((begin > at_ || line_starts_) && blank) stop = begin;
    }
    if (stop > at_) add(Mark::kText, "", string(source_.substr(at_, stop - at_)));
    advance(end - at_);
  }

  // Passes the end of a tag if it is here: "%}" with a sign, and the white space that goes with it.
  bool passEnd(const char* end, bool takes_newline, bool takes_plus = true) {
    const char32_t sign = signAt(at_);
    const size_t mark = at_ + (sign == '-' || (sign == '+' && takes_plus) ? 1 : 0);
    if (!sees(end, mark)) return false;
    const bool keeps = mark > at_ && sign == '+';
    advance(mark + 2 - at_);
    if (sign == '-') {
      skipSpace();
    } else if (takes_newline && !keeps && sees("\n")) {
      advance(1);
    }
    line_starts_ = at_ > 0 && source_[at_ - 1] == '\n';
    return true;
  }

  void data() {
    size_t open = at_;
    while ((open = source_.find(U'{', open)) != Text::npos) {
      const char32_t next = open + 1 < source_.size() ? source_[open + 1] : 0;
      if (next == '%' || next == '{' || next == '#') break;
      ++open;
    }
    if (open == Text::npos) {
      add(Mark::kText, "", string(source_.substr(at_)));
      at_ = source_.size();
      return;
    }
    const char32_t next = source_[open + 1], sign = signAt(open + 2);
    addText(open, sign, next == '{');
    advance(sign != 0 ? 3 : 2);
    line_starts_ = false;
    if (next == '#') return comment();
    if (next == '%' && raw()) return;
    add(next == '%' ? Mark::kBlockBegin : Mark::kPrintBegin, "");
    tag(next == '%');
  }

  void comment() {
    while (at_ < source_.size()) {
      if (passEnd("#}", true)) return;
      advance(1);
    }
    fail("a comment has no end");
  }

  bool raw() {
    const size_t at = at_;
    const int line = line_;
    skipSpace();
    const bool word = sees("raw");
    if (word) advance(3), skipSpace();
    if (!word || !(sees("%}") || sees("-%}")) || !passEnd("%}", false)) {
      at_ = at, line_ = line;
      line_starts_ = false;
      return false;
    }
    for (size_t end = at_; (end = source_.find(U"{%", end)) != Text::npos; ++end) {
      const char32_t sign = signAt(end + 2);
      const size_t at_before = at_, from = tokens_.size();
      const int line_before = line_;
      const bool starts_before = line_starts_;
      addText(end, sign, false);
      advance(sign != 0 ? 3 : 2);
      skipSpace();
      if (sees("endraw")) {
        advance(6), skipSpace();
        if (passEnd("%}", true)) return true;
      }
      tokens_.resize(from, Token{Mark::kEnd, 0, "", {}});
      at_ = at_before, line_ = line_before, line_starts_ = starts_before;
    }
    fail("a raw block has no end");
  }

  void tag(bool block) {
    std::string open;  // brackets
    for (;;) {
      if (open.empty() && (block ? passEnd("%}", true) : passEnd("}}", false, false))) {
        add(block ? Mark::kBlockEnd : Mark::kPrintEnd, "");
        return;
      }
      if (at_ >= source_.size()) fail("a tag has no end");
      const char32_t c = source_[at_];
      if (isSpace(c)) {
        skipSpace();
      } else if (isDigit(c)) {
        number();
      } else if (isWord(c)) {
        const size_t begin = at_;
        while (at_ < source_.size() && isWord(source_[at_])) ++at_;
        add(Mark::kName, utf8Of(source_.substr(begin, at_ - begin)));
      } else if (c == '\'' || c == '"') {
        quoted(c);
      } else {
        sign(open);
      }
    }
  }

  void sign(std::string& open) {
    for (const char* known :
         {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
          "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"}) {
      if (!sees(known)) continue;
      const std::string text = known;
      if (text == "(" || text == "[" || text == "{")
        open += text == "(" ? ')' : text == "[" ? ']' : '}';
      if (text == ")" || text == "]" || text == "}") {
        if (open.empty() || open.back() != text[0]) fail("unexpected \"" + text + "\"");
        open.pop_back();
      }
      add(Mark::kOperator, text);
      advance(text.size());
      return;
    }
    if (source_[at_] >= 0x80) {
      failAt(line_, FailureKind::kUnsupported, "a name with letters beyond ASCII");
    }
    fail("unexpected character \"" + utf8Of(source_.substr(at_, 1)) + "\"");
  }

  // Passes digits with single underscores between them.
  void digits(size_t& at, std::string& out, bool (*is)(char32_t) = isDigit) const {
    while (at < source_.size() &&
           (is(source_[at]) || (source_[at] == '_' && !out.empty() && at + 1 < source_.size() &&
                                is(source_[at + 1])))) {
      if (source_[at] != '_') out += static_cast<char>(source_[at]);
      ++at;
    }
  }

  void number() {
    const char32_t second = at_ + 1 < source_.size() ? source_[at_ + 1] | 0x20 : 0;
    size_t at = at_;
    std::string text;
    if (source_[at_] == '0' && (second == 'x' || second == 'o' || second == 'b')) {
      failAt(line_, FailureKind::kUnsupported, "a number in another base than ten");
    }
    digits(at, text);
    const size_t whole = at;
    std::string fraction, exponent;
    if (at + 1 < source_.size() && source_[at] == '.' && isDigit(source_[at + 1]))
      digits(++at, fraction);
    if (at < source_.size() && (source_[at] | 0x20) == 'e') {
      size_t power = at + 1;
      std::string sign;
      if (power < source_.size() && signAt(power) != 0) sign += static_cast<char>(source_[power++]);
      digits(power, exponent);
      if (!exponent.empty()) at = power, exponent = "e" + sign + exponent;
    }
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && (!fraction.empty() || !exponent.empty())) {
      text += (fraction.empty() ? "" : "." + fraction) + exponent;
      add(Mark::kNumber, "float", real(std::strtod(text.c_str(), nullptr)));
      advance(at - at_);
      return;
    }
    // A leading zero is a number of its own, as for Jinja.
    size_t zeros = 0;
    while (zeros < text.size() && text[zeros] == '0') ++zeros;
    if (zeros > 0 && zeros < text.size()) fail("a number begins with 0");
    if (text.size() > 18) failAt(line_, FailureKind::kUnsupported, "a number beyond 64 bits");
    add(Mark::kNumber, "integer", integer(std::stoll(text)));
    advance(whole - at_);
  }

  void quoted(char32_t quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a text has no closing quote");
    Text out;
    for (size_t i = at_ + 1; i < end;) {
      if (source_[i] == '\\') {
        escape(i, end, out);
      } else {
        out += source_[i++];
      }
    }
    add(Mark::kString, "", string(std::move(out)));
    advance(end + 1 - at_);
  }

  // Python's escapes in a text.
  void escape(size_t& i, size_t end, Text& out) const {
    constexpr std::u32string_view kLetters = U"\\'\"abfnrtv", kMeanings = U"\\'\"\a\b\f\n\r\t\v";
    const char32_t c = source_[i + 1];
    i += 2;
    if (c == '\n') return;
    if (const size_t known = kLetters.find(c); known != std::u32string_view::npos) {
      out += kMeanings[known];
    } else if (c >= '0' && c <= '7') {
      char32_t code = c - '0';
      for (int k = 0; k < 2 && i < end && source_[i] >= '0' && source_[i] <= '7'; ++k)
        code = code * 8 + source_[i++] - '0';
      out += code;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t code = 0;
      for (size_t k = 0; k < length; ++k, ++i) {
        const char32_t digit = i < end ? source_[i] : 0;
        const char32_t low = digit | 0x20;
        if (!isDigit(digit) && !(low >= 'a' && low <= 'f')) fail("an escape in a text is damaged");
        code = code << 4 | (isDigit(digit) ? digit - '0' : low - 'a' + 10);
      }
      if (code > 0x10ffff) fail("an escape in a text is damaged");
      out += code;
    } else if (c == 'N' || c >= 0x80) {
      failAt(line_, FailureKind::kUnsupported, "the escape \\" + utf8Of(Text(1, c)));
    } else {
      out += {U'\\', c};
    }
  }

  Text source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

using NodePtr = std::unique_ptr<Node>;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(Lexer(source).tokens()) {}

  NodePtr parse() {
    NodePtr root = make(NodeKind::kTemplate);
    root->body = statements({});
    return root;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool isName(std::string_view text) const {
    return now().mark == Mark::kName && now().text == text;
  }
  bool isSign(std::string_view text) const {
    return now().mark == Mark::kOperator && now().text == text;
  }
  bool skipName(std::string_view text) { return isName(text) && ++at_ > 0; }
  bool skipSign(std::string_view text) { return isSign(text) && ++at_ > 0; }
  [[noreturn]] void fail(const std::string& message) const {
    failAt(now().line, FailureKind::kSyntax, message);
  }
  void expectSign(const std::string& text) {
    if (!skipSign(text)) fail("\"" + text + "\" is missing" + found());
  }
  std::string found() const {
    return now().text.empty() ? "" : ", there is \"" + now().text + "\"";
  }
  std::string expectName() {
    if (now().mark != Mark::kName) fail("a name is missing" + found());
    return tokens_[at_++].text;
  }
  void expect(Mark mark, const char* what) {
    if (now().mark != mark) fail(std::string(what) + " is missing" + found());
    ++at_;
  }

  NodePtr make(NodeKind kind, std::string name = "") const {
    return std::make_unique<Node>(Node{.kind = kind, .line = now().line, .name = std::move(name)});
  }
  NodePtr with(NodePtr node, NodePtr kid) const {
    if (kid) node->depth = std::max(node->depth, kid->depth + 1);
    if (node->depth > kMaxDepth)
      failAt(node->line, FailureKind::kLimit, "its expressions are too deep");
    node->kids.push_back(std::move(kid));
    return node;
  }
  // Guards the parser's own recursion.
  struct Level {
    explicit Level(Parser* parser) : p(parser) {
      if (++p->level_ > kMaxDepth)
        failAt(p->now().line, FailureKind::kLimit, "it is nested too deep");
    }
    ~Level() { --p->level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Parser* p;
  };

  // Statements up to a tag that begins with one of `ends`, which stays.
  std::vector<NodePtr> statements(const std::vector<std::string_view>& ends) {
    const Level level(this);
    std::vector<NodePtr> all;
    for (;;) {
      if (now().mark == Mark::kEnd) {
        if (!ends.empty()) fail("the tag \"" + std::string(ends.back()) + "\" is missing");
        return all;
      }
      NodePtr node;
      if (now().mark == Mark::kText) {
        node = make(NodeKind::kText);
        node->value = tokens_[at_++].value;
      } else if (now().mark == Mark::kPrintBegin) {
        node = make(NodeKind::kPrint);
        ++at_;
        node = with(std::move(node), tuple());
        expect(Mark::kPrintEnd, "\"}}\"");
      } else {
        ++at_;
        if (std::any_of(ends.begin(), ends.end(),
                        [&](std::string_view end) { return isName(end); }))
          return all;
        node = statement();
        expect(Mark::kBlockEnd, "\"%}\"");
      }
      all.push_back(std::move(node));
    }
  }

  std::vector<NodePtr> block(const std::vector<std::string_view>& ends) {
    skipSign(":");
    expect(Mark::kBlockEnd, "\"%}\"");
    return statements(ends);
  }

  NodePtr statement() {
    if (now().mark != Mark::kName) fail("a tag has no name");
    const int line = now().line;
    const std::string name = expectName();
    if (name == "set") return set();
    if (name == "for") return loop();
    if (name == "if") return branch("endif");
    if (name == "macro") return macro();
    if (name == "generation") {
      NodePtr node = make(NodeKind::kGeneration);
      const int loops = std::exchange(loops_, 0);
      node->body = block({"endgeneration"});
      loops_ = loops;
      ++at_;
      return node;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail(name + " stands outside a loop");
      return make(name == "break" ? NodeKind::kBreak : NodeKind::kContinue);
    }
    const bool known = name == "include" || name == "import" || name == "from" ||
                       name == "extends" || name == "block" || name == "with" || name == "call" ||
                       name == "filter" || name == "autoescape" || name == "print";
    failAt(line, known ? FailureKind::kUnsupported : FailureKind::kSyntax, "the statement " + name);
  }

  // A name, an attribute of a namespace if `attributes`, or a tuple of names.
  NodePtr target(bool attributes) {
    const auto one = [&]() -> NodePtr {
      const Level level(this);
      if (skipSign("(")) {
        NodePtr inner = target(attributes);
        expectSign(")");
        return inner;
      }
      NodePtr node = make(NodeKind::kName);
      node->name = expectName();
      for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
        if (node->name == constant) fail("a value is set to the constant " + node->name);
      }
      if (attributes && skipSign(".")) {
        NodePtr attribute = make(NodeKind::kAttribute, expectName());
        return with(std::move(attribute), std::move(node));
      }
      return node;
    };
    NodePtr first = one();
    if (!isSign(",")) return first;
    NodePtr all = with(make(NodeKind::kTuple), std::move(first));
    while (skipSign(",")) {
      if (now().mark != Mark::kName && !isSign("(")) break;
      if (isName("in")) break;
      all = with(std::move(all), one());
    }
    return all;
  }

  NodePtr set() {
    NodePtr node = make(NodeKind::kSet);
    node = with(std::move(node), target(true));
    if (skipSign("=")) return with(std::move(node), tuple());
    node->kind = NodeKind::kSetBlock;
    NodePtr filters;
    while (isSign("|")) filters = filter(filters ? std::move(filters) : make(NodeKind::kName));
    node = with(std::move(node), std::move(filters));
    node->body = block({"endset"});
    ++at_;
    return node;
  }

  NodePtr loop() {
    NodePtr node = with(make(NodeKind::kFor), target(false));
    if (!skipName("in")) fail("\"in\" is missing" + found());
    node = with(std::move(node), tuple(false));
    node = with(std::move(node), skipName("if") ? expression() : nullptr);
    if (isName("recursive")) failAt(now().line, FailureKind::kUnsupported, "a recursive loop");
    ++loops_;
    node->body = block({"else", "endfor"});
    --loops_;
    if (skipName("else")) node->other = block({"endfor"});
    ++at_;
    return node;
  }

  NodePtr branch(std::string_view end) {
    const Level level(this);
    NodePtr node = make(NodeKind::kIf);
    node = with(std::move(node), tuple(false));
    node->body = block({"elif", "else", end});
    if (skipName("elif")) {
      node->other.push_back(branch(end));
      return node;
    }
    if (skipName("else")) node->other = block({end});
    ++at_;
    return node;
  }

  NodePtr macro() {
    NodePtr node = make(NodeKind::kMacro);
    node->name = expectName();
    expectSign("(");
    bool defaults = false;
    while (!isSign(")")) {
      if (!node->names.empty()) expectSign(",");
      node->names.push_back(expectName());
      NodePtr standard = skipSign("=") ? expression() : nullptr;
      if (defaults && !standard)
        fail("a parameter without a default stands behind one with a default");
      defaults = standard != nullptr;
      node = with(std::move(node), std::move(standard));
    }
    ++at_;
    const int loops = std::exchange(loops_, 0);
    node->body = block({"endmacro"});
    loops_ = loops;
    ++at_;
    return node;
  }

  // An expression, or a tuple without parentheses.
  NodePtr tuple(bool choices = true, bool parentheses = false) {
    const auto ends = [&] {
      return now().mark == Mark::kPrintEnd || now().mark == Mark::kBlockEnd || isSign(")") ||
             isName("recursive");
    };
    NodePtr all = make(NodeKind::kTuple);
    bool comma = false;
    while (!ends()) {
      all = with(std::move(all), choices ? expression() : disjunction());
      if (!isSign(",")) break;
      comma = true;
      ++at_;
    }
    if (comma || (parentheses && all->kids.empty())) return all;
    if (all->kids.empty()) fail("an expression is missing" + found());
    return std::move(all->kids[0]);
  }

  NodePtr expression() {
    const Level level(this);
    NodePtr node = disjunction();
    while (skipName("if")) {
      NodePtr choice = with(make(NodeKind::kChoice), disjunction());
      choice = with(std::move(choice), std::move(node));
      node = with(std::move(choice), skipName("else") ? expression() : nullptr);
    }
    return node;
  }

  NodePtr disjunction() {
    NodePtr node = conjunction();
    while (skipName("or")) node = pair(make(NodeKind::kOr), std::move(node), conjunction());
    return node;
  }
  NodePtr conjunction() {
    NodePtr node = negation();
    while (skipName("and")) node = pair(make(NodeKind::kAnd), std::move(node), negation());
    return node;
  }
  NodePtr negation() {
    const Level level(this);
    if (!skipName("not")) return comparison();
    return with(make(NodeKind::kNot), negation());
  }
  NodePtr pair(NodePtr node, NodePtr left, NodePtr right) const {
    return with(with(std::move(node), std::move(left)), std::move(right));
  }

  NodePtr comparison() {
    NodePtr first = sum();
    NodePtr node;
    for (;;) {
      std::string name;
      if (now().mark == Mark::kOperator) {
        for (const char* known : {"==", "!=", "<", "<=", ">", ">="}) {
          if (now().text == known) name = known;
        }
      } else if (isName("in")) {
        name = "in";
      } else if (isName("not") && after().mark == Mark::kName && after().text == "in") {
        name = "not in";
        ++at_;
      }
      if (name.empty()) return node ? std::move(node) : std::move(first);
      if (!node) node = with(make(NodeKind::kCompare), std::move(first));
      ++at_;
      node->names.push_back(name);
      node = with(std::move(node), sum());
    }
  }

  NodePtr sum() {
    NodePtr node = concatenation();
    while (isSign("+") || isSign("-")) {
      NodePtr both = make(NodeKind::kBinary, now().text);
      ++at_;
      node = pair(std::move(both), std::move(node), concatenation());
    }
    return node;
  }
  NodePtr concatenation() {
    NodePtr node = product();
    if (!isSign("~")) return node;
    node = with(make(NodeKind::kConcat), std::move(node));
    while (skipSign("~")) node = with(std::move(node), product());
    return node;
  }
  NodePtr product() {
    NodePtr node = power();
    while (isSign("*") || isSign("/") || isSign("//") || isSign("%")) {
      NodePtr both = make(NodeKind::kBinary, now().text);
      ++at_;
      node = pair(std::move(both), std::move(node), power());
    }
    return node;
  }
  NodePtr power() {
    NodePtr node = unary();
    while (skipSign("**")) node = pair(make(NodeKind::kBinary, "**"), std::move(node), unary());
    return node;
  }

  NodePtr unary(bool filters = true) {
    const Level level(this);
    NodePtr node;
    if (isSign("-") || isSign("+")) {
      node = make(isSign("-") ? NodeKind::kNegative : NodeKind::kPositive);
      ++at_;
      node = with(std::move(node), unary(false));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    while (filters) {
      if (isSign("|")) {
        node = filter(std::move(node));
      } else if (isName("is")) {
        node = test(std::move(node));
      } else if (isSign("(")) {
        node = call(std::move(node), NodeKind::kCall, "");
      } else {
        break;
      }
    }
    return node;
  }

  NodePtr primary() {
    NodePtr node = make(NodeKind::kConstant);
    const Token token = now();
    if (token.mark == Mark::kName) {
      ++at_;
      if (token.text == "true" || token.text == "True" || token.text == "false" ||
          token.text == "False") {
        node->value = boolean(token.text == "true" || token.text == "True");
      } else if (token.text == "none" || token.text == "None") {
        node->value = none();
      } else {
        node->kind = NodeKind::kName;
        node->name = token.text;
      }
      return node;
    }
    if (token.mark == Mark::kNumber) {
      ++at_;
      node->value = token.value;
      return node;
    }
    if (token.mark == Mark::kString) {
      Text text;
      for (; now().mark == Mark::kString; ++at_) text += now().value.text();
      node->value = string(std::move(text));
      return node;
    }
    if (skipSign("(")) {
      node = tuple(true, true);
      expectSign(")");
      return node;
    }
    if (skipSign("[")) {
      node->kind = NodeKind::kList;
      while (!isSign("]")) {
        if (!node->kids.empty()) expectSign(",");
        if (isSign("]")) break;
        node = with(std::move(node), expression());
      }
      ++at_;
      return node;
    }
    if (!skipSign("{")) fail("an expression is missing" + found());
    node->kind = NodeKind::kDict;
    while (!isSign("}")) {
      if (!node->kids.empty()) expectSign(",");
      if (isSign("}")) break;
      node = with(std::move(node), expression());
      expectSign(":");
      node = with(std::move(node), expression());
    }
    ++at_;
    return node;
  }

  NodePtr postfix(NodePtr node) {
    for (;;) {
      if (skipSign(".")) {
        if (now().mark == Mark::kNumber && now().text == "integer") {
          NodePtr index = make(NodeKind::kConstant);
          index->value = now().value;
          node = pair(make(NodeKind::kItem), std::move(node), std::move(index));
          ++at_;
        } else {
          NodePtr attribute = make(NodeKind::kAttribute);
          attribute->name = expectName();
          node = with(std::move(attribute), std::move(node));
        }
      } else if (skipSign("[")) {
        node = subscript(std::move(node));
      } else if (isSign("(")) {
        node = call(std::move(node), NodeKind::kCall, "");
      } else {
        return node;
      }
    }
  }

  NodePtr subscript(NodePtr of) {
    NodePtr node = with(make(NodeKind::kItem), std::move(of));
    const auto part = [&]() -> NodePtr {
      return isSign(":") || isSign("]") || isSign(",") ? nullptr : expression();
    };
    NodePtr first = part();
    if (!first && !isSign(":")) {
      failAt(now().line, FailureKind::kUnsupported, "an index that is empty");
    }
    node = with(std::move(node), std::move(first));
    if (skipSign(":")) {
      node->kind = NodeKind::kSlice;
      node = with(std::move(node), part());
      node = with(std::move(node), skipSign(":") ? part() : nullptr);
    }
    if (isSign(",")) failAt(now().line, FailureKind::kUnsupported, "an index with a comma");
    expectSign("]");
    return node;
  }

  // Reads arguments in parentheses behind the value or, for filters and tests, the name.
  NodePtr call(NodePtr of, NodeKind kind, std::string name) {
    NodePtr node = with(make(kind, std::move(name)), std::move(of));
    expectSign("(");
    for (bool first = true; !isSign(")"); first = false) {
      if (!first) expectSign(",");
      if (isSign(")")) break;
      if (isSign("*") || isSign("**")) {
        failAt(now().line, FailureKind::kUnsupported, "arguments with " + now().text);
      }
      const bool named =
          now().mark == Mark::kName && after().mark == Mark::kOperator && after().text == "=";
      if (named) {
        node->names.push_back(now().text);
        at_ += 2;
      } else if (!node->names.empty()) {
        fail("an argument without a name stands behind one with a name");
      }
      node = with(std::move(node), expression());
    }
    ++at_;
    return node;
  }

  NodePtr filter(NodePtr of) {
    ++at_;
    std::string name = expectName();
    while (skipSign(".")) name += "." + expectName();
    if (isSign("(")) return call(std::move(of), NodeKind::kFilter, std::move(name));
    return with(make(NodeKind::kFilter, std::move(name)), std::move(of));
  }

  NodePtr test(NodePtr of) {
    ++at_;
    const bool negated = skipName("not");
    std::string name = expectName();
    while (skipSign(".")) name += "." + expectName();
    NodePtr node;
    if (isSign("(")) {
      node = call(std::move(of), NodeKind::kTest, std::move(name));
    } else {
      node = with(make(NodeKind::kTest, std::move(name)), std::move(of));
      const bool argument = now().mark == Mark::kName
                                ? !isName("else") && !isName("or") && !isName("and")
                            : now().mark == Mark::kOperator
                                ? isSign("[") || isSign("{")
                                : now().mark == Mark::kString || now().mark == Mark::kNumber;
      if (argument) {
        if (isName("is")) fail("a test stands behind a test");
        node = with(std::move(node), postfix(primary()));
      }
    }
    return negated ? with(make(NodeKind::kNot), std::move(node)) : std::move(node);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  int loops_ = 0;
};

// Checks that Jinja knows all filters and tests. Like Jinja, it leaves those inside an if to the
// moment when they are reached.
void checkNames(const Node& node, bool optional) {
  const bool filter = node.kind == NodeKind::kFilter;
  const bool known = filter                         ? isFilter(node.name)
                     : node.kind == NodeKind::kTest ? isTest(node.name)
                                                    : true;
  if (!known && !optional) {
    failAt(node.line, FailureKind::kSyntax, (filter ? "the filter " : "the test ") + node.name);
  }
  const bool branches = node.kind == NodeKind::kIf;
  const bool choice = branches || node.kind == NodeKind::kChoice;
  for (const auto& kid : node.kids) {
    if (kid) checkNames(*kid, optional || choice);
  }
  for (const auto* block : {&node.body, &node.other}) {
    for (const auto& inner : *block) checkNames(*inner, branches);
  }
}

}  // namespace

std::shared_ptr<const Node> parse(std::string_view source) {
  std::shared_ptr<const Node> root = Parser(source).parse();
  checkNames(*root, false);
  return root;
}

}  // namespace allot::jinja
