#pragma once
// The syntax tree of a chat template, and the parser that makes it with Jinja's rules of white
// space and precedence. Pure functions; any thread. Private to worker/model/.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/model/jinja_value.h"

namespace allot::jinja {

enum class NodeKind {
  // Expressions.
  kConstant,  // value
  kName,      // name
  kList,      // kids
  kTuple,
  kDict,       // kids: key, value, key, value
  kAttribute,  // name of kids[0]
  kItem,       // kids[0][kids[1]]
  kSlice,      // kids[0][kids[1]:kids[2]]; null where nothing is written; name "-1": [::-1]
  kCall,       // kids[0](kids[1], ...); the last ones have the names in `names`
  kFilter,     // kids[0] | name(kids[1], ...)
  kTest,       // kids[0] is name(kids[1], ...)
  kNot,
  kNegative,
  kBinary,   // kids[0] name kids[1]
  kCompare,  // the same
  kAnd,
  kOr,
  kChoice,  // kids[1] if kids[0] else kids[2]; kids[2] may be null
  // Statements, with a body.
  kText,        // value
  kPrint,       // kids[0]
  kSet,         // kids[0] = kids[1]
  kSetBlock,    // kids[0] = body
  kFor,         // kids: target, iterable, condition or null; body, other
  kIf,          // kids[0], body, other
  kMacro,       // name, names: parameters; kids: their defaults or null
  kGeneration,  // body
  kBreak,
  kContinue,
  kTemplate,  // body
};

struct Node {
  NodeKind kind;
  int line = 0;
  std::string name = {};
  Value value = {};
  std::vector<std::unique_ptr<Node>> kids = {};
  std::vector<std::unique_ptr<Node>> body = {};
  std::vector<std::unique_ptr<Node>> other = {};
  std::vector<std::string> names = {};
  int depth = 1;
};

// Throws Fault: kSyntax, kUnsupported or kLimit, with the line.
std::shared_ptr<const Node> parse(std::string_view source);

}  // namespace allot::jinja
