#include "worker/model/jinja.h"

#include <algorithm>
#include <map>
#include <optional>

#include "worker/model/jinja_builtins.h"
#include "worker/model/jinja_parser.h"

namespace allot::jinja {
namespace {

constexpr size_t kWork = 4'000'000;             // units of Work for a template,
constexpr size_t kWorkPerCharacter = 16;        // and for each byte of its variables
constexpr int kMaxDepth = 900;                  // of evaluations in each other: some 1 MB of stack
constexpr size_t kMaxOutput = size_t{1} << 26;  // characters, beyond those of the variables

// Variables of a block. A macro keeps the scope that it was defined in.
struct Scope {
  std::map<std::string, Value> variables;
  std::shared_ptr<Scope> parent;
};
using ScopePtr = std::shared_ptr<Scope>;

enum class Flow { kOn, kBreak, kContinue };

// The variable loop of a for, which reads ahead only when asked, as Jinja's.
struct Loop {
  Values items;
  std::function<bool(const Value&)> wanted;  // the condition of the for
  size_t ahead = 0;                          // the next item, if `seen`
  bool seen = false;
  Value current = {}, before = {};
  int64_t index0 = -1;

  bool peek() {
    while (!seen && ahead < items.size() && !wanted(items[ahead])) ++ahead;
    seen = true;
    return ahead < items.size();
  }
  bool advance() {
    if (!peek()) return false;
    before = index0 < 0 ? undefined("there is no previous item") : current;
    current = items[ahead++];
    seen = false;
    ++index0;
    return true;
  }
};

class Machine {
 public:
  Machine(const std::vector<std::string>& unknown, size_t bytes)
      : unknown_(unknown),
        work_(kWork + kWorkPerCharacter * bytes),
        max_output_(kMaxOutput + bytes) {}
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() {
    // A macro and its scope hold each other, and a namespace may hold itself.
    for (const ScopePtr& scope : scopes_) scope->variables.clear();
    for (const Value& space : namespaces_) space.object->pairs.clear();
  }

  Text run(const Node& root, const nlohmann::ordered_json& variables) {
    const ScopePtr globals = newScope(nullptr);
    for (const auto& [name, value] : variables.items())
      globals->variables[name] = valueOf(value, name == "messages", false);
    runAll(root.body, newScope(globals));
    return std::move(output_);
  }
  int line() const { return line_; }

 private:
  Value valueOf(const nlohmann::ordered_json& json, bool messages, bool data) {
    if (json.is_null()) return none();
    if (json.is_boolean()) return boolean(json.get<bool>());
    if (json.is_number_integer()) return integer(json.get<int64_t>());
    if (json.is_number()) unsupported("a variable that is no whole number");
    if (json.is_string()) return string(textOf(json.get_ref<const std::string&>(), data));
    Pairs pairs;
    Values items;
    for (const auto& [key, value] : json.items()) {
      const bool marked = data || (messages && json.is_object() && key == "content");
      items.push_back(valueOf(value, messages, marked));
      if (json.is_object()) pairs.emplace_back(string(textOf(key)), std::move(items.back()));
    }
    return json.is_object() ? dict(std::move(pairs)) : sequence(Kind::kList, std::move(items));
  }

  ScopePtr newScope(ScopePtr parent) {
    work_.spend(4);
    return std::make_shared<Scope>(Scope{{}, std::move(parent)});
  }

  // Statements.

  Flow runAll(const std::vector<NodePtr>& nodes, const ScopePtr& scope) {
    const Level level(depth_, kMaxDepth);
    for (const auto& node : nodes) {
      if (const Flow flow = runOne(*node, scope); flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  void write(const Text& text) {
    work_.spend(1 + text.size() / 4);
    if (output_.size() + text.size() > max_output_)
      raise(FailureKind::kLimit, "its output is too long");
    output_ += text;
  }

  // Runs statements and returns their output.
  Text captured(const std::vector<NodePtr>& nodes, const ScopePtr& scope, Flow* flow = nullptr) {
    Text before = std::exchange(output_, {});
    const Flow ended = runAll(nodes, scope);
    if (flow != nullptr) *flow = ended;
    return std::exchange(output_, std::move(before));
  }

  Flow runOne(const Node& node, const ScopePtr& scope) {
    line_ = node.line;
    work_.spend(1);
    Flow flow = Flow::kOn;
    switch (node.kind) {
      case NodeKind::kText:
        return write(node.value.text()), flow;
      case NodeKind::kPrint:
        return write(str(work_, evaluate(*node.kids[0], scope))), flow;
      case NodeKind::kSet:
        return assign(*node.kids[0], evaluate(*node.kids[1], scope), scope), flow;
      case NodeKind::kSetBlock: {
        const Value text = string(captured(node.body, newScope(scope), &flow));
        if (flow == Flow::kOn) assign(*node.kids[0], text, scope);
        return flow;
      }
      case NodeKind::kIf:
        return runAll(truth(evaluate(*node.kids[0], scope)) ? node.body : node.other, scope);
      case NodeKind::kFor:
        return runLoop(node, scope);
      case NodeKind::kMacro:
        return define(node, scope), flow;
      case NodeKind::kGeneration:
        return runAll(node.body, newScope(scope));
      default:
        return node.kind == NodeKind::kBreak ? Flow::kBreak : Flow::kContinue;
    }
  }

  Flow runLoop(const Node& node, const ScopePtr& scope) {
    const Value all = evaluate(*node.kids[1], scope);
    const auto loop = std::make_shared<Loop>();
    loop->items = listOf(work_, all);
    loop->wanted = [&](const Value& item) {
      if (!node.kids[2]) return true;
      const ScopePtr inner = newScope(scope);
      assign(*node.kids[0], item, inner);
      return truth(evaluate(*node.kids[2], inner));
    };
    const Value variable = loopVariable(loop, all);
    // As Jinja's, the else runs unless the end of the body was reached once.
    bool ended = false;
    while (loop->advance()) {
      const ScopePtr inner = newScope(scope);
      inner->variables["loop"] = variable;
      assign(*node.kids[0], loop->current, inner);
      const Flow flow = runAll(node.body, inner);
      if (flow == Flow::kBreak) break;
      ended |= flow == Flow::kOn;
    }
    return !ended ? runAll(node.other, newScope(scope)) : Flow::kOn;
  }

  static Value loopVariable(const std::shared_ptr<Loop>& loop, const Value& all) {
    Value variable = sequence(Kind::kLoop, {});
    variable.object->depth += all.object ? all.object->depth : 0;
    // Weak: the variable may outlive its loop in a namespace, and Jinja's then has ended.
    const std::weak_ptr<Loop> weak = loop;
    variable.object->attribute = [weak](const std::string& name) -> Value {
      const auto l = weak.lock();
      if (!l) unsupported("the variable loop behind its loop");
      if (name == "index") return integer(l->index0 + 1);
      if (name == "index0") return integer(l->index0);
      if (name == "first") return boolean(l->index0 == 0);
      if (name == "last") return boolean(!l->peek());
      if (name == "previtem") return l->before;
      if (name == "nextitem") return l->peek() ? l->items[l->ahead] : undefined("the next item");
      unsupported("the attribute " + name + " of the variable loop");
    };
    return variable;
  }

  void define(const Node& node, const ScopePtr& scope) {
    scopes_.push_back(scope);
    scope->variables[node.name] =
        function([this, &node, defined = scopes_.size() - 1](Arguments& arguments) {
          return callMacro(node, scopes_[defined], arguments);
        });
  }

  Value callMacro(const Node& node, ScopePtr defined, Arguments& arguments) {
    const Level level(depth_, kMaxDepth);
    const ScopePtr scope = newScope(std::move(defined));
    const int line = line_;
    const auto fail = [&] {
      raise(FailureKind::kError, "the macro " + node.name + " has other parameters");
    };
    if (arguments.values.size() > node.names.size()) fail();
    for (size_t i = 0; i < arguments.values.size(); ++i)
      scope->variables[node.names[i]] = arguments.values[i];
    for (const auto& [name, value] : arguments.named) {
      const bool known = std::find(node.names.begin(), node.names.end(), name) != node.names.end();
      if (!known || !scope->variables.emplace(name, value).second) fail();
    }
    for (size_t i = 0; i < node.names.size(); ++i) {
      if (scope->variables.contains(node.names[i])) continue;
      // A default sees the parameters before it.
      const Value standard = node.kids[i] ? evaluate(*node.kids[i], scope)
                                          : undefined("the parameter " + node.names[i]);
      scope->variables[node.names[i]] = standard;
    }
    Value text = string(captured(node.body, scope));
    line_ = line;
    return text;
  }

  void assign(const Node& target, const Value& value, const ScopePtr& scope) {
    work_.spend(2);
    if (target.kind == NodeKind::kName) {
      scope->variables[target.name] = value;
    } else if (target.kind == NodeKind::kAttribute) {
      Value space = look(target.kids[0]->name, scope);
      if (!space.is(Kind::kNamespace))
        raise(FailureKind::kError, target.kids[0]->name + " is not a namespace");
      put(work_, space, string(textOf(target.name)), value);
    } else {
      const Values parts = listOf(work_, value);
      if (parts.size() != target.kids.size()) {
        raise(FailureKind::kError, std::to_string(target.kids.size()) + " names are set to " +
                                       std::to_string(parts.size()) + " values");
      }
      for (size_t i = 0; i < parts.size(); ++i) assign(*target.kids[i], parts[i], scope);
    }
  }

  // Expressions.

  Value look(const std::string& name, const ScopePtr& scope) {
    for (const Scope* s = scope.get(); s != nullptr; s = s->parent.get()) {
      work_.spend(1);
      if (const auto found = s->variables.find(name); found != s->variables.end())
        return found->second;
    }
    if (std::find(unknown_.begin(), unknown_.end(), name) != unknown_.end())
      unsupported(name + ", which the model's files do not name");
    for (const char* own : {"varargs", "kwargs", "caller", "self", "super"}) {
      if (name == own) unsupported("the variable " + name);
    }
    return globalFunction(work_, name);
  }

  Value evaluate(const Node& node, const ScopePtr& scope) {
    const Level level(depth_, kMaxDepth);
    work_.spend(1);
    line_ = node.line;
    const auto kid = [&](size_t i) {
      return node.kids[i] ? evaluate(*node.kids[i], scope) : none();
    };
    if (node.kind == NodeKind::kConstant) return node.value;
    if (node.kind == NodeKind::kName) return look(node.name, scope);
    if (node.kind == NodeKind::kAnd || node.kind == NodeKind::kOr) {
      const Value left = kid(0);
      return truth(left) == (node.kind == NodeKind::kOr) ? left : kid(1);
    }
    if (node.kind == NodeKind::kChoice) {
      if (truth(kid(0))) return kid(1);
      return node.kids[2] ? kid(2) : undefined("an if without an else");
    }
    Values kids;
    for (size_t i = 0; i < node.kids.size(); ++i) kids.push_back(kid(i));
    line_ = node.line;
    switch (node.kind) {
      case NodeKind::kList:
      case NodeKind::kTuple:
        return sequence(node.kind == NodeKind::kList ? Kind::kList : Kind::kTuple, std::move(kids));
      case NodeKind::kDict: {
        const Value made = dict({});
        for (size_t i = 0; i < kids.size(); i += 2) put(work_, made, kids[i], kids[i + 1]);
        return dict(made.pairs());
      }
      case NodeKind::kAttribute:
        return attributeOf(work_, kids[0], node.name);
      case NodeKind::kItem:
        return itemOf(work_, kids[0], kids[1]);
      case NodeKind::kSlice:
        return slice(kids[0], kids[1], kids[2], node.name == "-1");
      case NodeKind::kNot:
        return boolean(!truth(kids[0]));
      case NodeKind::kNegative:
        return binary('-', integer(0), kids[0]);
      case NodeKind::kBinary:
        return binary(node.name[0], kids[0], kids[1]);
      case NodeKind::kCompare:
        return boolean(compare(node.name, kids[0], kids[1]));
      default:
        break;
    }
    Arguments arguments;
    const size_t named = kids.size() - node.names.size();
    for (size_t i = 1; i < named; ++i) arguments.values.push_back(kids[i]);
    for (size_t i = named; i < kids.size(); ++i)
      arguments.named.emplace_back(node.names[i - named], kids[i]);
    if (node.kind == NodeKind::kFilter) return applyFilter(work_, node.name, kids[0], arguments);
    if (node.kind == NodeKind::kTest)
      return boolean(applyTest(work_, node.name, kids[0], arguments));
    if (kids[0].is(Kind::kUndefined)) raiseUndefined(kids[0]);
    if (!kids[0].is(Kind::kFunction))
      raise(FailureKind::kError, "a value of type " + typeName(kids[0]) + " is called");
    const Value result = kids[0].object->call(arguments);
    if (result.is(Kind::kNamespace)) namespaces_.push_back(result);
    return result;
  }

  bool compare(const std::string& op, const Value& left, const Value& right) {
    if (op == "==" || op == "!=") return equals(work_, left, right) == (op == "==");
    if (op == "in" || op == "not in") return contains(work_, right, left) == (op == "in");
    const Value &low = op[0] == '<' ? left : right, &high = op[0] == '<' ? right : left;
    return less(work_, low, high) || (op.size() == 2 && equals(work_, left, right));
  }

  Value slice(const Value& value, const Value& first, const Value& last, bool backwards) {
    if (value.is(Kind::kUndefined)) raiseUndefined(value);
    const bool text = value.is(Kind::kString);
    if (value.is(Kind::kRange) || (text && value.number == 1))
      unsupported("a slice of a range or of safe text");
    if (!text && !value.is(Kind::kList) && !value.is(Kind::kTuple))
      raise(FailureKind::kError, "a slice of a value of type " + typeName(value));
    const auto size = static_cast<int64_t>(lengthOf(value));
    const auto placed = [&](const Value& at, int64_t standard) {
      if (at.is(Kind::kNone)) return standard;
      if (!at.isNumber()) raise(FailureKind::kError, "a slice wants integers");
      const int64_t near = std::clamp<int64_t>(at.number, -size, size);
      return near < 0 ? near + size : near;
    };
    const int64_t begin = placed(first, 0), end = std::max(begin, placed(last, size));
    const auto part = [&](auto whole) {
      whole = {whole.begin() + begin, whole.begin() + end};
      if (backwards) std::reverse(whole.begin(), whole.end());
      return whole;
    };
    work_.spend(static_cast<size_t>(text ? size / 4 : 2 * size));
    return text ? string(part(value.text())) : sequence(value.kind, part(value.items()));
  }

  Value binary(char op, const Value& left, const Value& right) {
    const auto name = [&] { return std::string(1, op); };
    for (const Value* value : {&left, &right}) {
      if (value->is(Kind::kString) && value->number == 1 && op != '~')
        unsupported("the operator " + name() + " with safe text");
    }
    if (op == '~' || (op == '+' && left.is(Kind::kString) && right.is(Kind::kString))) {
      Text text = str(work_, left);
      text += str(work_, right);
      work_.spend(text.size() / 4);
      return string(std::move(text));
    }
    if (op == '%' && left.is(Kind::kString)) unsupported("the operator % of a text");
    for (const Value* value : {&left, &right}) {
      if (value->is(Kind::kUndefined)) raiseUndefined(*value);
    }
    if (left.isNumber() && right.isNumber())
      return integer(arithmetic(op, left.number, right.number));
    if (op == '+' && left.kind == right.kind && (left.is(Kind::kList) || left.is(Kind::kTuple))) {
      Values items = left.items();
      items.insert(items.end(), right.items().begin(), right.items().end());
      work_.spend(2 * items.size());
      return sequence(left.kind, std::move(items));
    }
    if (op == '*' && (left.isNumber() || right.isNumber())) {
      const Value& many = left.isNumber() ? right : left;
      const int64_t count = std::max<int64_t>(0, left.isNumber() ? left.number : right.number);
      if (many.is(Kind::kList) || many.is(Kind::kTuple)) unsupported("a multiple of a list");
      if (many.is(Kind::kString)) {
        const Text& text = many.text();
        if (!text.empty() && static_cast<size_t>(count) > kMaxOutput / text.size())
          raise(FailureKind::kLimit, "a value becomes too long");
        work_.spend(1 + text.size() * static_cast<size_t>(count) / 2);
        Text all;
        for (int64_t i = 0; i < count && !text.empty(); ++i) all += text;
        return string(std::move(all));
      }
    }
    raise(FailureKind::kError, typeName(left) + " " + name() + " " + typeName(right));
  }

  static int64_t arithmetic(char op, int64_t a, int64_t b) {
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

  const std::vector<std::string>& unknown_;
  Work work_;
  size_t max_output_;
  std::vector<ScopePtr> scopes_;  // those with macros
  Values namespaces_;
  Text output_;
  int depth_ = 0;
  int line_ = 0;
};

size_t bytesIn(const nlohmann::ordered_json& json) {
  if (json.is_string()) return json.get_ref<const std::string&>().size();
  size_t bytes = 1;
  if (json.is_structured()) {
    for (const auto& item : json) bytes += bytesIn(item);
  }
  return bytes;
}

}  // namespace

tl::expected<Template, Failure> Template::parse(std::string_view source) {
  try {
    Template made;
    made.root_ = jinja::parse(source);
    return made;
  } catch (Fault& fault) {
    return tl::unexpected(std::move(fault.failure));
  }
}

tl::expected<std::vector<Span>, Failure> Template::render(
    const nlohmann::ordered_json& variables, const std::vector<std::string>& unknown) const {
  Machine machine(unknown, bytesIn(variables));
  try {
    std::vector<Span> spans;
    const Text output = machine.run(*root_, variables);
    for (size_t at = 0; at < output.size();) {
      size_t end = at;
      while (end < output.size() && (output[end] & kData) == (output[at] & kData)) ++end;
      spans.push_back({utf8Of(output.substr(at, end - at)), (output[at] & kData) != 0});
      at = end;
    }
    return spans;
  } catch (Fault& fault) {
    if (fault.failure.line == 0) fault.failure.line = machine.line();
    return tl::unexpected(std::move(fault.failure));
  }
}

}  // namespace allot::jinja
