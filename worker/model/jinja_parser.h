#pragma once
// The syntax tree of a chat template, and the parser that makes it with Jinja's rules of white
// space and precedence. Pure functions; any thread. Private to worker/model/.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/model/jinja_value.h"

namespace allot::jinja {

// The parts of a node are `kids`; a part that may be missing is null:
// kList, kTuple; kDict: key, value, key, value; kAttribute: the attribute `name` of kids[0];
// kItem: kids[0][kids[1]]; kSlice: kids[0][kids[1]:kids[2]], and the name "-1" means [::-1];
// kCall, kFilter, kTest: kids[0] and the arguments, the last ones with the names in `names`;
// kBinary, kCompare: `name` is the operator; kChoice: kids[1] if kids[0] else kids[2];
// kSet: kids[0] = kids[1]; kSetBlock: kids[0] = body; kFor: target, iterable, condition;
// kMacro: the parameters are `names` and their defaults are `kids`.
enum class NodeKind {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNot,
  kNegative,
  kBinary,
  kCompare,
  kAnd,
  kOr,
  kChoice,
  kText,
  kPrint,
  kSet,
  kSetBlock,
  kFor,
  kIf,
  kMacro,
  kGeneration,
  kBreak,
  kContinue,
  kTemplate
};

using NodePtr = std::unique_ptr<struct Node>;

struct Node {
  NodeKind kind;
  int line = 0;
  std::string name = {};
  Value value = {};
  std::vector<NodePtr> kids = {};
  std::vector<NodePtr> body = {};
  std::vector<NodePtr> other = {};
  std::vector<std::string> names = {};
  int depth = 1;
};

// Throws Fault: kSyntax, kUnsupported or kLimit, with the line.
std::shared_ptr<const Node> parse(std::string_view source);

}  // namespace allot::jinja
