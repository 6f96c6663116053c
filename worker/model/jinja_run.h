#pragma once
// The steps that a chat template becomes, and a rendering, which runs them: scopes, loops, macros
// and the bounds on work and depth. One thread at a time. Private to worker/model/.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/jinja_parts.h"

namespace allot::jinja {

struct Run;

// A statement or an expression. A template becomes a tree of them.
struct Step {
  std::function<Value(Run& run)> run;
  int depth;
};

using Code = std::shared_ptr<const Step>;
using Codes = std::vector<Code>;
using Words = std::vector<const char*>;

constexpr size_t kWork = 4'000'000;       // units of Work for a template,
constexpr size_t kWorkPerCharacter = 64;  // and for each byte of its variables
constexpr int kMaxDepth = 900;            // of steps in each other: less than 1 MB of stack

// Names of a block, without those of the blocks in it. Jinja decides by the whole text of a block
// which names are its own: one that the block sets first is undefined in it before.
struct Names {
  std::shared_ptr<const Names> parent;
  std::set<std::string> known = {};  // read or set
  std::set<std::string> fresh = {};  // first set, outside any if, and in no block around this one
  int ifs = 0;                       // around what is read now

  void set(const std::string& name) {
    if (known.insert(name).second && ifs == 0) fresh.insert(name);
  }
  bool isAround(const std::string& name) const {
    return parent && (parent->known.contains(name) || parent->isAround(name));
  }
};
using NamesPtr = std::shared_ptr<Names>;
inline const Names kNoNames;

// Variables of a block.
struct Scope {
  std::map<std::string, Value> variables;
  std::shared_ptr<Scope> parent;
};
using ScopePtr = std::shared_ptr<Scope>;

enum class Flow { kOn, kBreak, kContinue };

// What set and for give values to: a name, several names, or an attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  std::string attribute = {};
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters = {};
  Codes parts = {};  // a default or null for each parameter, then the body
  NamesPtr names = {};
};

// The variable loop of a for, which reads ahead only when asked, as Jinja's.
struct Loop {
  Values items;
  std::function<bool(const Value&)> wanted;  // the condition of the for
  size_t ahead = 0;                          // the next item, if `seen`
  bool seen = false;
  Value current = {}, before = undefined("previtem");
  int64_t index0 = -1;

  bool peek() {
    while (!seen && ahead < items.size() && !wanted(items[ahead])) ++ahead;
    seen = true;
    return ahead < items.size();
  }
  bool advance() {
    if (!peek()) return false;
    if (++index0 > 0) before = current;
    current = items[ahead++];
    seen = false;
    return true;
  }
};

// Returns a variable as a value. data: its text is marked as data; messages: that of "content" is.
Value valueOf(const nlohmann::ordered_json& json, bool messages, bool data);

// A rendering.
struct Run {
  Run(const std::vector<std::string>& not_known, size_t bytes)
      : unknown(not_known), work{kWork + kWorkPerCharacter * bytes} {}
  ~Run() {
    // A namespace may hold itself.
    for (const Value& space : namespaces) space.object->pairs.clear();
  }

  // Runs `body` in a new scope inside `parent`. A fault ends the rendering, whose scope is then
  // wrong.
  template <typename Body>
  auto inside(ScopePtr parent, const Names& names, const Body& body) {
    work.spend(8 + kObjectUnits * names.fresh.size());
    ScopePtr before = std::exchange(scope, std::make_shared<Scope>(Scope{{}, std::move(parent)}));
    for (const std::string& name : names.fresh) scope->variables[name] = undefined(name);
    auto result = body();
    scope = std::move(before);
    return result;
  }

  void start(const Code& root, const nlohmann::ordered_json& variables) {
    scope = std::make_shared<Scope>();
    for (const auto& [name, value] : variables.items())
      scope->variables[name] = valueOf(value, name == "messages", false);
    eval(root);
  }

  Value eval(const Code& code) {
    work.spend(1);
    if (++depth > kMaxDepth) raise(FailureKind::kLimit, "it is nested too deep");
    Value value = code->run(*this);
    --depth;
    return value;
  }

  void write(const Text& text) {
    work.spend(text.size());
    output += text;
  }

  // Runs a block and returns its output.
  Value captured(const Code& block) {
    Text before = std::exchange(output, {});
    eval(block);
    return string(std::exchange(output, std::move(before)));
  }

  // parts: iterable, condition or null, body
  void runLoop(const Target& target, const Names& names, const Codes& parts) {
    const Value all = eval(parts[0]);
    const ScopePtr outer = scope;
    const auto loop = std::make_shared<Loop>();
    loop->items = listOf(work, all);
    loop->wanted = [&](const Value& item) {
      return !parts[1] ||
             inside(outer, kNoNames, [&] { return assign(target, item), truth(eval(parts[1])); });
    };
    const Value variable = loopVariable(loop, all);
    work.spend(4 * kObjectUnits);
    for (Flow left = Flow::kOn; left != Flow::kBreak && loop->advance();) {
      left = inside(outer, names, [&] {
        scope->variables["loop"] = variable;
        assign(target, loop->current);
        eval(parts[2]);
        return std::exchange(flow, Flow::kOn);
      });
    }
  }

  static Value loopVariable(const std::shared_ptr<Loop>& loop, const Value& all) {
    Value variable = sequence(Kind::kLoop, {all});
    // Weak: the variable may outlive its loop in a namespace, and must not keep its scope.
    variable.object->call = [weak = std::weak_ptr(loop)](const Arguments& arguments) -> Value {
      const std::string name = utf8Of(arguments.values[0].text());
      const auto loop = weak.lock();
      if (!loop) unsupported("the variable loop behind its loop");
      if (name == "index") return integer(loop->index0 + 1);
      if (name == "index0") return integer(loop->index0);
      if (name == "first") return boolean(loop->index0 == 0);
      if (name == "last") return boolean(!loop->peek());
      if (name == "previtem") return loop->before;
      if (name == "nextitem")
        return loop->peek() ? loop->items[loop->ahead] : undefined("nextitem");
      unsupported("the attribute " + name + " of the variable loop");
    };
    return variable;
  }

  void define(const Macro& macro) {
    // Weak: the macro may outlive its block in a namespace, and must not keep its scope.
    scope->variables[macro.name] =
        function([this, &macro, weak = std::weak_ptr(scope)](const Arguments& arguments) {
          const ScopePtr defined = weak.lock();
          if (!defined) unsupported("the macro " + macro.name + " behind its block");
          return inside(defined, *macro.names, [&] { return callMacro(macro, arguments); });
        });
  }

  Value callMacro(const Macro& macro, const Arguments& arguments) {
    const auto& parameters = macro.parameters;
    const auto& [values, named] = arguments;
    size_t used = std::min(values.size(), parameters.size());
    std::vector<size_t> missing;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto given = std::find_if(named.begin(), named.end(),
                                      [&](const auto& one) { return one.first == parameters[i]; });
      const bool has = i >= values.size() && given != named.end();
      used += has ? 1 : 0;
      if (i >= values.size() && !has) missing.push_back(i);
      scope->variables[parameters[i]] = i < values.size() ? values[i]
                                        : has             ? given->second
                                                          : undefined(parameters[i]);
    }
    if (used < values.size() + named.size())
      raise(FailureKind::kError, "the macro " + macro.name + " has other parameters");
    // A default sees all parameters.
    for (const size_t i : missing) {
      if (macro.parts[i]) scope->variables[parameters[i]] = eval(macro.parts[i]);
    }
    return captured(macro.parts.back());
  }

  void assign(const Target& target, const Value& value) {
    work.spend(2);
    const auto& names = target.names;
    if (!target.attribute.empty()) {
      const Value space = look(names[0]);
      if (!space.is(Kind::kNamespace)) raise(FailureKind::kError, names[0] + " is not a namespace");
      return put(work, space, string(target.attribute), value);
    }
    const Values parts = names.size() == 1 ? Values{value} : listOf(work, value);
    if (parts.size() != names.size()) {
      raise(FailureKind::kError, std::to_string(names.size()) + " names are set to " +
                                     std::to_string(parts.size()) + " values");
    }
    for (size_t i = 0; i < parts.size(); ++i) scope->variables[names[i]] = parts[i];
  }

  Value look(const std::string& name) {
    for (const Scope* s = scope.get(); s != nullptr; s = s->parent.get()) {
      work.spend(1);
      if (const auto found = s->variables.find(name); found != s->variables.end())
        return found->second;
    }
    if (std::find(unknown.begin(), unknown.end(), name) != unknown.end())
      unsupported(name + ", which the model's files do not name");
    return globalFunction(work, name);
  }

  Value call(const Value& callee, const Arguments& arguments) {
    checkDefined(callee);
    if (!callee.is(Kind::kFunction))
      raise(FailureKind::kError, "a value of type " + typeName(callee) + " is called");
    const Value result = callee.object->call(arguments);
    if (result.is(Kind::kNamespace)) namespaces.push_back(result);
    return result;
  }

  const std::vector<std::string>& unknown;
  Work work;
  ScopePtr scope = nullptr;
  Text output = {};
  Flow flow = Flow::kOn;
  int line = 0;
  int depth = 0;
  Values namespaces = {};
};

}  // namespace allot::jinja
