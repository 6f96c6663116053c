#include "worker/model/jinja_parser.h"

#include <algorithm>

#include "worker/model/jinja_builtins.h"

namespace allot::jinja {
namespace {

constexpr int kMaxDepth = 200;  // of expressions and statements in each other
constexpr size_t kMaxTokens = 400'000;

enum class Mark { kText, kBlock, kBlockEnd, kPrint, kPrintEnd, kName, kValue, kSign, kEnd };

struct Token {
  Mark mark;
  int line;
  std::string text;  // of a name or a sign
  Value value = {};  // of a text, string or number
};

bool isDigit(char32_t c) { return c >= '0' && c <= '9'; }
bool isWord(char32_t c) {
  return isDigit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

[[noreturn]] void fail(const std::string& message) { raise(FailureKind::kSyntax, message); }

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

  // Throws Fault without a line: that is line().
  std::vector<Token> tokens() {
    while (at_ < source_.size()) data();
    add(Mark::kEnd, "");
    return std::move(tokens_);
  }
  int line() const { return line_; }

 private:
  char32_t at(size_t place) const { return place < source_.size() ? source_[place] : 0; }
  bool sees(std::string_view text, size_t place) const {
    return place <= source_.size() && equal(source_.substr(place, text.size()), text);
  }
  void advance(size_t count) {
    for (; count > 0 && at_ < source_.size(); --count) line_ += source_[at_++] == '\n';
  }
  void skipSpace() {
    while (at_ < source_.size() && isSpace(source_[at_])) advance(1);
  }
  void add(Mark mark, std::string text, Value value = {}) {
    if (tokens_.size() == kMaxTokens) raise(FailureKind::kLimit, "it is too long");
    tokens_.push_back({mark, line_, std::move(text), std::move(value)});
  }
  // The sign behind "{%" and its like: '-', '+' or 0.
  char32_t signAt(size_t place) const {
    return at(place) == '-' || at(place) == '+' ? at(place) : 0;
  }

  // Adds the text from at_ to `end`, where a tag with this sign begins.
  void addText(size_t end, char32_t sign, bool print) {
    size_t stop = end;
    if (sign == '-') {
      while (stop > at_ && isSpace(source_[stop - 1])) --stop;
    } else if (sign != '+' && !print) {
      size_t begin = end;
      while (begin > at_ && source_[begin - 1] != '\n' && isSpace(source_[begin - 1])) --begin;
      if (begin > at_ ? source_[begin - 1] == '\n' : line_starts_) stop = begin;
    }
    if (stop > at_) add(Mark::kText, "", string(source_.substr(at_, stop - at_)));
    advance(end - at_);
  }

  // Passes the end of a tag if it is here: "%}" with a sign, and the white space that goes with it.
  bool passEnd(const char* end, bool block) {
    const char32_t sign = signAt(at_);
    const size_t mark = at_ + (sign == '-' || (sign == '+' && block) ? 1 : 0);
    if (!sees(end, mark)) return false;
    const bool keeps = mark > at_ && sign == '+';
    advance(mark + 2 - at_);
    if (sign == '-') {
      skipSpace();
    } else if (block && !keeps && at(at_) == '\n') {
      advance(1);
    }
    line_starts_ = at_ > 0 && source_[at_ - 1] == '\n';
    return true;
  }

  void data() {
    size_t open = source_.find(U'{', at_);
    while (open != Text::npos && !(sees("{%", open) || sees("{{", open) || sees("{#", open)))
      open = source_.find(U'{', open + 1);
    if (open == Text::npos) {
      add(Mark::kText, "", string(source_.substr(at_)));
      at_ = source_.size();
      return;
    }
    const char32_t next = source_[open + 1], sign = signAt(open + 2);
    addText(open, sign, next == '{');
    advance(sign != 0 ? 3 : 2);
    line_starts_ = false;
    if (next == '#') {
      for (; !passEnd("#}", true); advance(1)) {
        if (at_ == source_.size()) fail("a comment has no end");
      }
    } else {
      add(next == '%' ? Mark::kBlock : Mark::kPrint, "");
      tag(next == '%');
    }
  }

  void tag(bool block) {
    std::string open;  // the closing brackets that are due
    for (const size_t first = tokens_.size();;) {
      skipSpace();
      if (open.empty() && passEnd(block ? "%}" : "}}", block)) {
        add(block ? Mark::kBlockEnd : Mark::kPrintEnd, "");
        return;
      }
      if (at_ == source_.size()) fail("a tag has no end");
      const char32_t c = source_[at_];
      if (isDigit(c)) {
        number();
      } else if (isWord(c)) {
        const std::string word = taken(isWord);
        if (block && tokens_.size() == first && word == "raw") unsupported("the statement raw");
        add(Mark::kName, word);
      } else if (c == '\'' || c == '"') {
        quoted(c);
      } else {
        sign(open);
      }
    }
  }

  std::string taken(bool (*is)(char32_t)) {
    std::string out;
    for (; is(at(at_)); ++at_) out += static_cast<char>(source_[at_]);
    return out;
  }

  void sign(std::string& open) {
    for (const char* known :
         {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
          "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"}) {
      if (!sees(known, at_)) continue;
      const std::string text = known;
      if (text == "(") open += ')';
      if (text == "[" || text == "{") open += static_cast<char>(text[0] + 2);
      if (text == ")" || text == "]" || text == "}") {
        if (open.empty() || open.back() != text[0]) fail("unexpected \"" + text + "\"");
        open.pop_back();
      }
      add(Mark::kSign, text);
      return advance(text.size());
    }
    if (source_[at_] >= 0x80) unsupported("a name with letters beyond ASCII");
    fail("unexpected character \"" + utf8Of(source_.substr(at_, 1)) + "\"");
  }

  void number() {
    const std::string text = taken(isDigit);
    const bool fraction = at(at_) == '.' && isDigit(at(at_ + 1));
    if (text.size() > 18) unsupported("a number beyond 64 bits");
    if (fraction || isWord(at(at_)) || (text[0] == '0' && text.size() > 1))
      unsupported("a number that is not of plain digits");
    add(Mark::kValue, "", integer(std::stoll(text)));
  }

  void quoted(char32_t quote) {
    constexpr std::u32string_view kLetters = U"\\'\"nrt", kMeanings = U"\\'\"\n\r\t";
    Text out;
    size_t end = at_ + 1;
    for (; end < source_.size() && source_[end] != quote; ++end) {
      if (source_[end] != '\\') {
        out += source_[end];
        continue;
      }
      const size_t known = kLetters.find(at(++end));
      if (known == std::u32string_view::npos)
        unsupported("the escape \\" + utf8Of(Text(1, at(end))));
      out += kMeanings[known];
    }
    if (end >= source_.size()) fail("a text has no closing quote");
    add(Mark::kValue, "", string(std::move(out)));
    advance(end + 1 - at_);
  }

  Text source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

using Words = std::vector<std::string_view>;

bool among(std::string_view text, const Words& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Throws Fault without a line: that is line().
  NodePtr parse() {
    NodePtr root = made(1, NodeKind::kTemplate);
    root->body = statements({});
    return root;
  }
  int line() const { return now().line; }

 private:
  const Token& now() const { return tokens_[at_]; }
  // Whether a name or a sign stands here.
  bool is(std::string_view text) const { return now().text == text; }
  bool skip(std::string_view text) { return is(text) && ++at_ > 0; }
  [[noreturn]] void miss(const std::string& what) const {
    fail(what + " is missing" + (is("") ? "" : ", there is \"" + now().text + "\""));
  }
  void expect(const std::string& text) {
    if (!skip(text)) miss("\"" + text + "\"");
  }
  void expect(Mark mark, const char* what) {
    if (is(",")) unsupported("a tuple without parentheses");
    if (now().mark != mark) miss(what);
    ++at_;
  }
  std::string expectName() {
    if (now().mark != Mark::kName) miss("a name");
    return tokens_[at_++].text;
  }

  static void add(Node& node, NodePtr kid) {
    if (kid) node.depth = std::max(node.depth, kid->depth + 1);
    if (node.depth > kMaxDepth) raise(FailureKind::kLimit, "its expressions are too deep");
    node.kids.push_back(std::move(kid));
  }
  template <typename... Kids>
  static NodePtr made(int line, NodeKind kind, std::string name = "", Kids... kids) {
    auto node = std::make_unique<Node>(Node{.kind = kind, .line = line, .name = std::move(name)});
    (add(*node, std::move(kids)), ...);
    return node;
  }

  // Reads the node's name.
  template <typename... Kids>
  NodePtr named(NodeKind kind, Kids... kids) {
    const int at = line();
    std::string name = expectName();
    if (is(".") && (kind == NodeKind::kFilter || kind == NodeKind::kTest))
      unsupported("a filter or a test with a dot in its name");
    return made(at, kind, std::move(name), std::move(kids)...);
  }

  // Statements up to a tag that begins with one of `ends`, which stays.
  std::vector<NodePtr> statements(const Words& ends) {
    const Level level(level_, kMaxDepth);
    for (std::vector<NodePtr> all;;) {
      if (now().mark == Mark::kEnd) {
        if (!ends.empty()) miss("the tag \"" + std::string(ends.back()) + "\"");
        return all;
      }
      const Token& token = tokens_[at_++];
      if (token.mark == Mark::kText) {
        all.push_back(made(token.line, NodeKind::kText));
        all.back()->value = token.value;
      } else if (token.mark == Mark::kPrint) {
        all.push_back(made(token.line, NodeKind::kPrint, "", expression()));
        expect(Mark::kPrintEnd, "\"}}\"");
      } else if (now().mark == Mark::kName && among(now().text, ends)) {
        return all;
      } else {
        all.push_back(statement());
        expect(Mark::kBlockEnd, "\"%}\"");
      }
    }
  }

  std::vector<NodePtr> block(const Words& ends) {
    skip(":");
    expect(Mark::kBlockEnd, "\"%}\"");
    return statements(ends);
  }
  // The same up to the one end, which is passed. A break inside cannot leave a loop outside.
  std::vector<NodePtr> closed(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    std::vector<NodePtr> body = block({end});
    loops_ = loops;
    ++at_;
    return body;
  }

  NodePtr statement() {
    if (now().mark != Mark::kName) fail("a tag has no name");
    NodePtr node = made(line(), NodeKind::kGeneration);
    const std::string name = expectName();
    if (name == "set") {
      set(*node);
    } else if (name == "for") {
      loop(*node);
    } else if (name == "if") {
      branch(*node);
    } else if (name == "macro") {
      macro(*node);
    } else if (name == "generation") {
      node->body = closed("endgeneration");
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) fail(name + " stands outside a loop");
      node->kind = name == "break" ? NodeKind::kBreak : NodeKind::kContinue;
    } else {
      const bool known = among(name, {"include", "import", "from", "extends", "block", "with",
                                      "call", "filter", "autoescape", "print"});
      raise(known ? FailureKind::kUnsupported : FailureKind::kSyntax, "the statement " + name);
    }
    return node;
  }

  NodePtr target() {
    if (is("(")) unsupported("parentheses around names that are set");
    if (among(now().text, {"true", "false", "none", "True", "False", "None"}))
      fail("a value is set to the constant " + now().text);
    return named(NodeKind::kName);
  }

  void set(Node& node) {
    NodePtr name = target();
    if (is(",")) unsupported("a set of several names");
    if (skip(".")) name = named(NodeKind::kAttribute, std::move(name));
    add(node, std::move(name));
    node.kind = is("=") ? NodeKind::kSet : NodeKind::kSetBlock;
    if (skip("=")) return add(node, expression());
    if (is("|")) unsupported("a filter of a set block");
    node.body = block({"endset"});
    ++at_;
  }

  void loop(Node& node) {
    node.kind = NodeKind::kFor;
    NodePtr name = target();
    if (is(",")) name = made(line(), NodeKind::kTuple, "", std::move(name));
    while (skip(",")) add(*name, target());
    add(node, std::move(name));
    expect("in");
    add(node, binary(0));
    add(node, skip("if") ? expression() : nullptr);
    if (is("recursive")) unsupported("a recursive loop");
    ++loops_;
    node.body = block({"else", "endfor"});
    --loops_;
    if (skip("else")) node.other = block({"endfor"});
    ++at_;
  }

  void branch(Node& node) {
    const Level level(level_, kMaxDepth);
    node.kind = NodeKind::kIf;
    add(node, binary(0));
    node.body = block({"elif", "else", "endif"});
    if (skip("elif")) {
      node.other.push_back(made(line(), NodeKind::kIf));
      return branch(*node.other[0]);
    }
    if (skip("else")) node.other = block({"endif"});
    ++at_;
  }

  void macro(Node& node) {
    node.kind = NodeKind::kMacro;
    node.name = expectName();
    expect("(");
    while (!skip(")")) {
      if (!node.names.empty()) expect(",");
      node.names.push_back(expectName());
      NodePtr standard = skip("=") ? expression() : nullptr;
      if (!node.kids.empty() && node.kids.back() && !standard)
        fail("a parameter without a default stands behind one with a default");
      add(node, std::move(standard));
    }
    node.body = closed("endmacro");
  }

  NodePtr expression() {
    const Level level(level_, kMaxDepth);
    NodePtr node = binary(0);
    while (skip("if")) {
      const int at = line();
      NodePtr choice = made(at, NodeKind::kChoice, "", binary(0), std::move(node));
      add(*choice, skip("else") ? expression() : nullptr);
      node = std::move(choice);
    }
    return node;
  }

  // Operators of this level of precedence and those that bind more tightly.
  NodePtr binary(size_t level) {
    static const std::vector<Words> kLevels = {{"or"},
                                               {"and"},
                                               {},  // not
                                               {"==", "!=", "<", "<=", ">", ">=", "in", "not in"},
                                               {"+", "-"},
                                               {"~"},
                                               {"*", "/", "//", "%"},
                                               {"**"}};
    if (level == kLevels.size()) return unary();
    const int at_line = line();
    if (level == 2 && skip("not")) {
      const Level guard(level_, kMaxDepth);
      return made(at_line, NodeKind::kNot, "", binary(2));
    }
    NodePtr left = binary(level + 1);
    for (bool compared = false;; compared = level == 3) {
      const bool two = is("not") && tokens_[at_ + 1].text == "in";
      const std::string op = two ? "not in" : now().text;
      if (!among(op, kLevels[level])) return left;
      if (among(op, {"/", "//", "**"})) unsupported("the operator " + op);
      if (compared) unsupported("a chain of comparisons");
      const NodeKind kind = level == 0   ? NodeKind::kOr
                            : level == 1 ? NodeKind::kAnd
                            : level == 3 ? NodeKind::kCompare
                                         : NodeKind::kBinary;
      left = made(line(), kind, op, std::move(left));
      at_ += two ? 2 : 1;
      add(*left, binary(level + 1));
    }
  }

  NodePtr unary(bool filters = true) {
    const Level level(level_, kMaxDepth);
    const int at_line = line();
    if (is("+")) unsupported("the sign +");
    NodePtr node =
        postfix(skip("-") ? made(at_line, NodeKind::kNegative, "", unary(false)) : primary());
    while (filters && (is("|") || is("is") || is("("))) {
      if (is("(")) {
        node = made(line(), NodeKind::kCall, "", std::move(node));
        arguments(*node);
      } else if (skip("|")) {
        node = named(NodeKind::kFilter, std::move(node));
        if (is("(")) arguments(*node);
      } else {
        node = test(std::move(node));
      }
    }
    return node;
  }

  NodePtr primary() {
    NodePtr node = made(line(), NodeKind::kConstant);
    const Token token = now();
    if (token.mark == Mark::kName) {
      ++at_;
      const std::string& name = node->name = token.text;
      if (among(name, {"true", "True", "false", "False"})) {
        node->value = boolean(name == "true" || name == "True");
      } else if (name == "none" || name == "None") {
        node->value = none();
      } else {
        node->kind = NodeKind::kName;
      }
    } else if (token.mark == Mark::kValue) {
      node->value = tokens_[at_++].value;
      if (now().mark == Mark::kValue) unsupported("values that stand side by side");
    } else if (skip("(")) {
      node->kind = NodeKind::kTuple;
      listed(*node, ")");
      if (node->kids.size() == 1 && tokens_[at_ - 2].text != ",") return std::move(node->kids[0]);
    } else if (skip("[")) {
      node->kind = NodeKind::kList;
      listed(*node, "]");
    } else {
      if (!skip("{")) miss("an expression");
      node->kind = NodeKind::kDict;
      listed(*node, "}");
    }
    return node;
  }

  // Reads expressions with commas between them, and the closing bracket.
  void listed(Node& node, std::string_view end) {
    while (!skip(end)) {
      if (!node.kids.empty()) expect(",");
      if (skip(end)) break;
      add(node, expression());
      if (node.kind != NodeKind::kDict) continue;
      expect(":");
      add(node, expression());
    }
  }

  NodePtr postfix(NodePtr node) {
    for (;;) {
      if (skip(".")) {
        if (now().mark == Mark::kValue) unsupported("an attribute that is a number");
        node = named(NodeKind::kAttribute, std::move(node));
      } else if (skip("[")) {
        node = made(line(), NodeKind::kItem, "", std::move(node));
        subscript(*node);
      } else if (is("(")) {
        node = made(line(), NodeKind::kCall, "", std::move(node));
        arguments(*node);
      } else {
        return node;
      }
    }
  }

  void subscript(Node& node) {
    if (is("]")) unsupported("an index that is empty");
    add(node, is(":") ? nullptr : expression());
    if (skip(":")) {
      node.kind = NodeKind::kSlice;
      add(node, is(":") || is("]") ? nullptr : expression());
      if (skip(":") && !is("]")) {
        const bool one = skip("-") && now().value.is(Kind::kInt) && now().value.number == 1;
        if (!one || node.kids[1] || node.kids[2] || tokens_[++at_].text != "]")
          unsupported("a slice with a step, other than [::-1]");
        node.name = "-1";
      }
    }
    if (is(",")) unsupported("an index with a comma");
    expect("]");
  }

  // Reads arguments in parentheses.
  void arguments(Node& node) {
    expect("(");
    while (!skip(")")) {
      if (node.kids.size() > 1) expect(",");
      if (skip(")")) break;
      if (is("*") || is("**")) unsupported("arguments with " + now().text);
      if (now().mark == Mark::kName && tokens_[at_ + 1].text == "=") {
        node.names.push_back(now().text);
        at_ += 2;
      } else if (!node.names.empty()) {
        fail("an argument without a name stands behind one with a name");
      }
      add(node, expression());
    }
  }

  NodePtr test(NodePtr of) {
    ++at_;
    const bool negated = skip("not");
    NodePtr node = named(NodeKind::kTest, std::move(of));
    const bool name = now().mark == Mark::kName && !among(now().text, {"else", "or", "and"});
    if (is("(")) {
      arguments(*node);
    } else if (name || now().mark == Mark::kValue || is("[") || is("{")) {
      unsupported("a test's argument without parentheses");
    }
    const int at = node->line;
    return negated ? made(at, NodeKind::kNot, "", std::move(node)) : std::move(node);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  int loops_ = 0;
};

// Checks that all filters and tests are known. Like Jinja, it leaves those inside an if to the
// moment when they are reached.
void checkNames(const Node& node, bool optional) {
  const bool filter = node.kind == NodeKind::kFilter, test = node.kind == NodeKind::kTest;
  if (!optional && ((filter && !isFilter(node.name)) || (test && !isTest(node.name)))) {
    const std::string what = filter ? "the filter " : "the test ";
    throw Fault{{FailureKind::kUnsupported, node.line, what + node.name}};
  }
  const bool branches = node.kind == NodeKind::kIf;
  for (const auto& kid : node.kids) {
    if (kid) checkNames(*kid, optional || branches || node.kind == NodeKind::kChoice);
  }
  for (const auto* block : {&node.body, &node.other}) {
    for (const auto& inner : *block) checkNames(*inner, branches);
  }
}

}  // namespace

std::shared_ptr<const Node> parse(std::string_view source) {
  const auto lined = [](auto& reader, auto read) {
    try {
      return (reader.*read)();
    } catch (Fault& fault) {
      fault.failure.line = reader.line();
      throw;
    }
  };
  Lexer lexer(source);
  Parser parser(lined(lexer, &Lexer::tokens));
  std::shared_ptr<const Node> root = lined(parser, &Parser::parse);
  checkNames(*root, false);
  return root;
}

}  // namespace allot::jinja
