#include "worker/model/jinja.h"

#include <algorithm>
#include <cmath>
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
  Next next;
  std::optional<size_t> known_size;  // of what is iterated
  std::optional<Value> ahead;
  Value current, before;
  int64_t index0 = -1;
  Values changed;
  bool has_changed = false;

  bool peek() {
    Value item;
    if (!ahead && next(item)) ahead = item;
    return ahead.has_value();
  }
  bool advance() {
    if (!peek()) return false;
    before = index0 < 0 ? undefined("there is no previous item") : current;
    current = std::move(*ahead);
    ahead.reset();
    ++index0;
    return true;
  }
  int64_t size() {
    if (!known_size) {
      Values rest;
      for (Value item; next(item);) rest.push_back(item);
      known_size = rest.size() + static_cast<size_t>(index0 + 1) + (ahead ? 1 : 0);
      next = iterate(sequence(Kind::kList, std::move(rest)));
    }
    return static_cast<int64_t>(*known_size);
  }
};

class Machine {
 public:
  Machine(const nlohmann::ordered_json& variables, const std::vector<std::string>& unknown,
          size_t bytes)
      : unknown_(unknown),
        work_(kWork + kWorkPerCharacter * bytes),
        max_output_(kMaxOutput + bytes) {
    globals_ = newScope(nullptr);
    for (const auto& [name, value] : variables.items())
      globals_->variables[name] = valueOf(value, name == "messages", false);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() {
    // A macro and its scope hold each other, and a namespace may hold itself.
    for (const ScopePtr& scope : scopes_) scope->variables.clear();
    for (const Value& space : namespaces_) space.object->pairs.clear();
  }

  Text run(const Node& root) {
    runAll(root.body, newScope(globals_));
    return std::move(output_);
  }
  int line() const { return line_; }

 private:
  Value valueOf(const nlohmann::ordered_json& json, bool messages, bool data) {
    switch (json.type()) {
      case nlohmann::ordered_json::value_t::null:
        return none();
      case nlohmann::ordered_json::value_t::boolean:
        return boolean(json.get<bool>());
      case nlohmann::ordered_json::value_t::number_integer:
      case nlohmann::ordered_json::value_t::number_unsigned:
        return integer(json.get<int64_t>());
      case nlohmann::ordered_json::value_t::number_float:
        return real(json.get<double>());
      case nlohmann::ordered_json::value_t::string:
        return string(textOf(json.get_ref<const std::string&>(), data));
      case nlohmann::ordered_json::value_t::object: {
        Pairs pairs;
        for (const auto& [key, value] : json.items()) {
          pairs.emplace_back(string(textOf(key)),
                             valueOf(value, messages, data || (messages && key == "content")));
        }
        return dict(std::move(pairs));
      }
      default: {
        Values items;
        for (const auto& item : json) items.push_back(valueOf(item, messages, data));
        return sequence(Kind::kList, std::move(items));
      }
    }
  }

  ScopePtr newScope(ScopePtr parent) {
    work_.spend(4);
    return std::make_shared<Scope>(Scope{{}, std::move(parent)});
  }

  struct Level {
    explicit Level(Machine* machine) : m(machine) {
      if (++m->depth_ > kMaxDepth) raise(FailureKind::kLimit, "it recurses too deep");
    }
    ~Level() { --m->depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Machine* m;
  };

  // Statements.

  Flow runAll(const std::vector<std::unique_ptr<Node>>& nodes, const ScopePtr& scope) {
    const Level level(this);
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
  Text captured(const std::vector<std::unique_ptr<Node>>& nodes, const ScopePtr& scope,
                Flow* flow = nullptr) {
    Text before = std::exchange(output_, {});
    const Flow ended = runAll(nodes, scope);
    if (flow != nullptr) *flow = ended;
    return std::exchange(output_, std::move(before));
  }

  Flow runOne(const Node& node, const ScopePtr& scope) {
    line_ = node.line;
    work_.spend(1);
    switch (node.kind) {
      case NodeKind::kText:
        write(node.value.text());
        return Flow::kOn;
      case NodeKind::kPrint: {
        const Value value = evaluate(*node.kids[0], scope);
        write(str(work_, value));
        return Flow::kOn;
      }
      case NodeKind::kSet:
        assign(*node.kids[0], evaluate(*node.kids[1], scope), scope);
        return Flow::kOn;
      case NodeKind::kSetBlock: {
        const ScopePtr inner = newScope(scope);
        Flow flow = Flow::kOn;
        Value text = string(captured(node.body, inner, &flow));
        if (flow != Flow::kOn) return flow;
        if (node.kids[1]) {
          inner->variables[""] = std::move(text);  // what the filters begin with
          text = evaluate(*node.kids[1], inner);
        }
        assign(*node.kids[0], text, scope);
        return Flow::kOn;
      }
      case NodeKind::kIf:
        return runAll(truth(evaluate(*node.kids[0], scope)) ? node.body : node.other, scope);
      case NodeKind::kFor:
        return runLoop(node, scope);
      case NodeKind::kMacro:
        define(node, scope);
        return Flow::kOn;
      case NodeKind::kGeneration:
        return runAll(node.body, newScope(scope));
      case NodeKind::kBreak:
        return Flow::kBreak;
      default:
        return Flow::kContinue;
    }
  }

  Flow runLoop(const Node& node, const ScopePtr& scope) {
    const Value all = evaluate(*node.kids[1], scope);
    auto loop = std::make_shared<Loop>();
    loop->next = iterate(all);
    if (!all.is(Kind::kIterator)) loop->known_size = lengthOf(all);
    if (node.kids[2]) {
      loop->known_size.reset();
      loop->next = [this, &node, scope, every = loop->next](Value& out) {
        while (every(out)) {
          const ScopePtr inner = newScope(scope);
          assign(*node.kids[0], out, inner);
          if (truth(evaluate(*node.kids[2], inner))) return true;
        }
        return false;
      };
    }
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
    return !ended ? runAll(node.other, scope) : Flow::kOn;
  }

  Value loopVariable(const std::shared_ptr<Loop>& loop, const Value& all) {
    Value variable = sequence(Kind::kLoop, {});
    variable.object->depth += all.object ? all.object->depth : 0;
    // Weak: the variable may outlive its loop in a namespace, and Jinja's then has ended.
    variable.object->attribute =
        [this, weak = std::weak_ptr<Loop>(loop)](const std::string& name) -> Value {
      const auto l = weak.lock();
      if (!l) raise(FailureKind::kUnsupported, "the variable loop behind its loop");
      if (name == "index") return integer(l->index0 + 1);
      if (name == "index0") return integer(l->index0);
      if (name == "first") return boolean(l->index0 == 0);
      if (name == "last") return boolean(!l->peek());
      if (name == "length") return integer(l->size());
      if (name == "revindex") return integer(l->size() - l->index0);
      if (name == "revindex0") return integer(l->size() - l->index0 - 1);
      if (name == "previtem") return l->before;
      if (name == "nextitem") return l->peek() ? *l->ahead : undefined("there is no next item");
      if (name == "depth" || name == "depth0") return integer(name == "depth" ? 1 : 0);
      if (name == "cycle") {
        return function([weak](Arguments& arguments) {
          const auto now = weak.lock();
          if (!arguments.named.empty() || arguments.values.empty() || !now)
            raise(FailureKind::kError, "cycle has other arguments");
          return arguments.values[static_cast<size_t>(now->index0) % arguments.values.size()];
        });
      }
      if (name == "changed") {
        return function([this, weak](Arguments& arguments) {
          const auto now = weak.lock();
          if (!arguments.named.empty() || !now)
            raise(FailureKind::kError, "changed has other arguments");
          const bool same = now->has_changed && equals(work_, sequence(Kind::kTuple, now->changed),
                                                       sequence(Kind::kTuple, arguments.values));
          now->has_changed = true;
          now->changed = arguments.values;
          return boolean(!same);
        });
      }
      return {};
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
    const Level level(this);
    const ScopePtr scope = newScope(std::move(defined));
    const int line = line_;
    const auto fail = [&] {
      raise(FailureKind::kError, "the macro " + node.name + " has other parameters");
    };
    if (arguments.values.size() > node.names.size()) fail();
    size_t used = 0;
    for (size_t i = 0; i < node.names.size(); ++i) {
      const auto named =
          std::find_if(arguments.named.begin(), arguments.named.end(),
                       [&](const auto& pair) { return pair.first == node.names[i]; });
      const bool given = named != arguments.named.end();
      if (i < arguments.values.size()) {
        scope->variables[node.names[i]] = arguments.values[i];
      } else if (given) {
        ++used;
        scope->variables[node.names[i]] = named->second;
      } else {
        // Evaluated below: a default sees the parameters before it.
        scope->variables[node.names[i]] = node.kids[i]
                                              ? evaluate(*node.kids[i], scope)
                                              : undefined("the parameter " + node.names[i]);
      }
    }
    if (used != arguments.named.size()) fail();
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
      if (!space.is(Kind::kNamespace)) {
        if (space.is(Kind::kUndefined))
          raise(FailureKind::kError, target.kids[0]->name + " is not a namespace");
        raise(FailureKind::kError,
              "an attribute of " + target.kids[0]->name + " is set, which is no namespace");
      }
      put(work_, space.object->pairs, string(textOf(target.name)), value);
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
    if (std::find(unknown_.begin(), unknown_.end(), name) != unknown_.end()) {
      raise(FailureKind::kUnsupported, name + ", which the model's files do not name");
    }
    if (name == "varargs" || name == "kwargs" || name == "caller" || name == "self" ||
        name == "super") {
      raise(FailureKind::kUnsupported, "the variable " + name);
    }
    return globalFunction(work_, name);
  }

  Values kidsOf(const Node& node, const ScopePtr& scope) {
    Values values;
    for (const auto& kid : node.kids) values.push_back(evaluate(*kid, scope));
    return values;
  }

  Arguments argumentsOf(const Node& node, const ScopePtr& scope) {
    Arguments arguments;
    const size_t named = node.kids.size() - node.names.size();
    for (size_t i = 1; i < named; ++i) arguments.values.push_back(evaluate(*node.kids[i], scope));
    for (size_t i = named; i < node.kids.size(); ++i) {
      arguments.named.emplace_back(node.names[i - named], evaluate(*node.kids[i], scope));
    }
    return arguments;
  }

  Value evaluate(const Node& node, const ScopePtr& scope) {
    const Level level(this);
    work_.spend(1);
    line_ = node.line;
    const auto kid = [&](size_t i) { return evaluate(*node.kids[i], scope); };
    switch (node.kind) {
      case NodeKind::kConstant:
        return node.value;
      case NodeKind::kName:
        return look(node.name, scope);
      case NodeKind::kList:
        return sequence(Kind::kList, kidsOf(node, scope));
      case NodeKind::kTuple:
        return sequence(Kind::kTuple, kidsOf(node, scope));
      case NodeKind::kDict: {
        Pairs pairs;
        const Values kids = kidsOf(node, scope);
        for (size_t i = 0; i < kids.size(); i += 2) put(work_, pairs, kids[i], kids[i + 1]);
        return dict(std::move(pairs));
      }
      case NodeKind::kAttribute: {
        const Value value = kid(0);
        line_ = node.line;
        return attributeOf(work_, value, node.name);
      }
      case NodeKind::kItem: {
        const Value value = kid(0), key = kid(1);
        return itemOf(work_, value, key);
      }
      case NodeKind::kSlice:
        return slice(node, scope);
      case NodeKind::kCall: {
        const Value callee = kid(0);
        Arguments arguments = argumentsOf(node, scope);
        line_ = node.line;
        return call(callee, arguments);
      }
      case NodeKind::kFilter: {
        const Value input = kid(0);
        Arguments arguments = argumentsOf(node, scope);
        line_ = node.line;
        return applyFilter(work_, node.name, input, arguments);
      }
      case NodeKind::kTest: {
        const Value value = kid(0);
        Arguments arguments = argumentsOf(node, scope);
        line_ = node.line;
        return boolean(applyTest(work_, node.name, value, arguments));
      }
      case NodeKind::kNot:
        return boolean(!truth(kid(0)));
      case NodeKind::kNegative:
      case NodeKind::kPositive: {
        const Value value = kid(0);
        const int sign = node.kind == NodeKind::kNegative ? -1 : 1;
        if (value.is(Kind::kUndefined)) raiseUndefined(value);
        if (value.is(Kind::kFloat)) return real(sign * value.real);
        if (!value.isNumber())
          raise(FailureKind::kError, "a sign in front of a value of type " + typeName(value));
        if (value.number == INT64_MIN)
          raise(FailureKind::kUnsupported, "an integer beyond 64 bits");
        return integer(sign * value.number);
      }
      case NodeKind::kBinary: {
        const Value left = kid(0), right = kid(1);
        line_ = node.line;
        return binary(node.name, left, right);
      }
      case NodeKind::kConcat: {
        Text text;
        for (const Value& part : kidsOf(node, scope)) {
          text += str(work_, part);
          work_.spend(text.size() / 4);
        }
        return string(std::move(text));
      }
      case NodeKind::kCompare: {
        Value left = kid(0);
        for (size_t i = 0; i < node.names.size(); ++i) {
          Value right = kid(i + 1);
          line_ = node.line;
          if (!compare(node.names[i], left, right)) return boolean(false);
          left = std::move(right);
        }
        return boolean(true);
      }
      case NodeKind::kAnd:
      case NodeKind::kOr: {
        const Value left = kid(0);
        return truth(left) == (node.kind == NodeKind::kOr) ? left : kid(1);
      }
      case NodeKind::kChoice:
        if (truth(kid(0))) return kid(1);
        return node.kids[2] ? kid(2) : undefined("an if without an else");
      default:
        return {};
    }
  }

  Value call(const Value& callee, Arguments& arguments) {
    if (callee.is(Kind::kUndefined)) raiseUndefined(callee);
    if (callee.is(Kind::kLoop))
      raise(FailureKind::kError, "a loop that is not recursive is called");
    if (!callee.is(Kind::kFunction))
      raise(FailureKind::kError, "a value of type " + typeName(callee) + " is called");
    Value result = callee.object->call(arguments);
    if (result.is(Kind::kNamespace)) namespaces_.push_back(result);
    return result;
  }

  bool compare(const std::string& op, const Value& left, const Value& right) {
    if (op == "==") return equals(work_, left, right);
    if (op == "!=") return !equals(work_, left, right);
    if (op == "in") return contains(work_, right, left);
    if (op == "not in") return !contains(work_, right, left);
    if (op == "<") return less(work_, left, right);
    if (op == ">") return less(work_, right, left);
    return (op == "<=" ? less(work_, left, right) : less(work_, right, left)) ||
           equals(work_, left, right);
  }

  Value slice(const Node& node, const ScopePtr& scope) {
    const Value value = evaluate(*node.kids[0], scope);
    const auto bound = [&](size_t i) -> std::optional<int64_t> {
      if (!node.kids[i]) return std::nullopt;
      const Value at = evaluate(*node.kids[i], scope);
      if (at.is(Kind::kNone)) return std::nullopt;
      if (!at.isNumber()) return INT64_MAX;  // reported below, as Python does
      return std::clamp<int64_t>(at.number, -(int64_t{1} << 40), int64_t{1} << 40);
    };
    const std::optional<int64_t> first = bound(1), last = bound(2), stride = bound(3);
    if (value.is(Kind::kUndefined)) raiseUndefined(value);
    if (value.is(Kind::kRange)) raise(FailureKind::kUnsupported, "a slice of a range");
    const bool text = value.is(Kind::kString);
    if (!text && !value.is(Kind::kList) && !value.is(Kind::kTuple)) {
      raise(FailureKind::kError, "a slice of a value of type " + typeName(value));
    }
    if (first == INT64_MAX || last == INT64_MAX || stride == INT64_MAX)
      raise(FailureKind::kError, "a slice wants integers");
    const auto size = static_cast<int64_t>(text ? value.text().size() : value.items().size());
    const int64_t step = stride.value_or(1);
    if (step == 0) raise(FailureKind::kError, "a slice has the step 0");
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
    const auto placed = [&](std::optional<int64_t> at, int64_t standard) {
      if (!at) return standard;
      return std::clamp(*at < 0 ? *at + size : *at, low, high);
    };
    const int64_t begin = placed(first, step < 0 ? high : low),
                  end = placed(last, step < 0 ? low : high);
    Text characters;
    Values items;
    for (int64_t i = begin; step < 0 ? i > end : i < end; i += step) {
      if (text) {
        characters += value.text()[static_cast<size_t>(i)];
      } else {
        items.push_back(value.items()[static_cast<size_t>(i)]);
      }
    }
    work_.spend(characters.size() / 4 + 2 * items.size());
    if (text && value.number == 1) raise(FailureKind::kUnsupported, "a slice of safe text");
    return text ? string(std::move(characters)) : sequence(value.kind, std::move(items));
  }

  Value binary(const std::string& op, const Value& left, const Value& right) {
    for (const Value* value : {&left, &right}) {
      if (value->is(Kind::kString) && value->number == 1)
        raise(FailureKind::kUnsupported, "the operator " + op + " with safe text");
    }
    if (op == "%" && left.is(Kind::kString))
      raise(FailureKind::kUnsupported, "the operator % of a text");
    for (const Value* value : {&left, &right}) {
      if (value->is(Kind::kUndefined)) raiseUndefined(*value);
    }
    const auto numeric = [](const Value& v) { return v.isNumber() || v.is(Kind::kFloat); };
    if (numeric(left) && numeric(right)) {
      const bool reals = left.is(Kind::kFloat) || right.is(Kind::kFloat);
      return reals || op == "/" ? realResult(op, left, right)
                                : integerResult(op, left.number, right.number);
    }
    if (op == "+" && left.kind == right.kind) {
      if (left.is(Kind::kString)) {
        work_.spend((left.text().size() + right.text().size()) / 4);
        return string(left.text() + right.text());
      }
      if (left.is(Kind::kList) || left.is(Kind::kTuple)) {
        Values items = left.items();
        items.insert(items.end(), right.items().begin(), right.items().end());
        work_.spend(2 * items.size());
        return sequence(left.kind, std::move(items));
      }
    }
    if (op == "*" && (left.isNumber() || right.isNumber())) {
      const Value& many = left.isNumber() ? right : left;
      const int64_t count = std::max<int64_t>(0, left.isNumber() ? left.number : right.number);
      const bool text = many.is(Kind::kString);
      if (text || many.is(Kind::kList) || many.is(Kind::kTuple)) {
        const size_t size = text ? many.text().size() : 4 * many.items().size();
        if (size > 0 && static_cast<size_t>(count) > kMaxOutput / size)
          raise(FailureKind::kLimit, "a value becomes too long");
        work_.spend(1 + size * static_cast<size_t>(count) / 2);
        Text characters;
        Values items;
        for (int64_t i = 0; i < count && size > 0; ++i) {
          if (text) {
            characters += many.text();
          } else {
            items.insert(items.end(), many.items().begin(), many.items().end());
          }
        }
        return text ? string(std::move(characters)) : sequence(many.kind, std::move(items));
      }
    }
    raise(FailureKind::kError, typeName(left) + " " + op + " " + typeName(right));
  }

  static Value realResult(const std::string& op, const Value& left, const Value& right) {
    const double a = left.is(Kind::kFloat) ? left.real : static_cast<double>(left.number);
    const double b = right.is(Kind::kFloat) ? right.real : static_cast<double>(right.number);
    if (op == "+") return real(a + b);
    if (op == "-") return real(a - b);
    if (op == "*") return real(a * b);
    if (op == "**") {
      if (a == 0 && b < 0) raise(FailureKind::kError, "a division by zero");
      const double result = std::pow(a, b);
      if (!std::isfinite(result) && std::isfinite(a) && std::isfinite(b))
        raise(FailureKind::kUnsupported, "such a power");
      return real(result);
    }
    if (b == 0) raise(FailureKind::kError, "a division by zero");
    if (op == "/") return real(a / b);
    // As Python's divmod: the remainder has the divisor's sign.
    double rest = std::fmod(a, b);
    double whole = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) rest += b, whole -= 1;
    if (rest == 0) rest = std::copysign(0.0, b);
    if (op == "%") return real(rest);
    if (whole == 0) return real(std::copysign(0.0, a / b));
    const double floored = std::floor(whole);
    return real(whole - floored > 0.5 ? floored + 1 : floored);
  }

  static Value integerResult(const std::string& op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool over = false;
    if (op == "+") {
      over = __builtin_add_overflow(a, b, &result);
    } else if (op == "-") {
      over = __builtin_sub_overflow(a, b, &result);
    } else if (op == "*") {
      over = __builtin_mul_overflow(a, b, &result);
    } else if (op == "**") {
      if (b < 0) return realResult(op, real(static_cast<double>(a)), real(static_cast<double>(b)));
      result = 1;
      if (a >= -1 && a <= 1) b = b > 1 ? 2 - b % 2 : b;
      for (; b > 0 && !over; --b) over = __builtin_mul_overflow(result, a, &result);
    } else {
      if (b == 0) raise(FailureKind::kError, "a division by zero");
      if (b == -1 && a == INT64_MIN) raise(FailureKind::kUnsupported, "an integer beyond 64 bits");
      const int64_t rest = a % b;
      const bool other_sign = rest != 0 && (rest < 0) != (b < 0);
      result = op == "%" ? rest + (other_sign ? b : 0) : a / b - (other_sign ? 1 : 0);
    }
    if (over) raise(FailureKind::kUnsupported, "an integer beyond 64 bits");
    return integer(result);
  }

  const std::vector<std::string>& unknown_;
  Work work_;
  size_t max_output_;
  ScopePtr globals_;
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
  Machine machine(variables, unknown, bytesIn(variables));
  try {
    std::vector<Span> spans;
    const Text output = machine.run(*root_);
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
