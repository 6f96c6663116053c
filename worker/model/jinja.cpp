#include "worker/model/jinja.h"

#include "worker/model/jinja_parser.h"
#include "worker/model/jinja_run.h"

namespace allot::jinja {

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
    if (json.is_object()) pairs.emplace_back(string(key), std::move(items.back()));
  }
  return json.is_object() ? dict(std::move(pairs)) : sequence(Kind::kList, std::move(items));
}

tl::expected<Template, Failure> Template::parse(std::string_view source) {
  try {
    Template made;
    made.root_ = parseTemplate(source);
    return made;
  } catch (Fault& fault) {
    return tl::unexpected(std::move(fault.failure));
  }
}

tl::expected<std::vector<Span>, Failure> Template::render(
    const nlohmann::ordered_json& variables, const std::vector<std::string>& unknown) const {
  const auto ignore = nlohmann::ordered_json::error_handler_t::ignore;
  Run run(unknown, variables.dump(-1, ' ', false, ignore).size());
  try {
    run.start(root_, variables);
  } catch (Fault& fault) {
    fault.failure.line = run.line;
    return tl::unexpected(std::move(fault.failure));
  }
  std::vector<Span> spans;
  const Text& output = run.output;
  for (size_t at = 0; at < output.size();) {
    size_t end = at;
    while (end < output.size() && (output[end] & kData) == (output[at] & kData)) ++end;
    spans.push_back({utf8Of(output.substr(at, end - at)), (output[at] & kData) != 0});
    at = end;
  }
  return spans;
}

}  // namespace allot::jinja
