// Executes chat templates for jinja_random_test.py: each line of stdin is {"template": TEXT,
// "variables": OBJECT}, each line of stdout {"text": TEXT} or {"failure": KIND, "line": N,
// "message": TEXT}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/model/jinja.h"

int main() {
  using allot::jinja::Failure;
  constexpr const char* kKinds[] = {"syntax", "undefined",   "error",
                                    "raised", "unsupported", "limit"};
  for (std::string line; std::getline(std::cin, line);) {
    const auto input = nlohmann::ordered_json::parse(line);
    nlohmann::json output;
    const auto fail = [&](const Failure& failure) {
      output = {{"failure", kKinds[static_cast<int>(failure.kind)]},
                {"line", failure.line},
                {"message", failure.message}};
    };
    const auto parsed = allot::jinja::Template::parse(input["template"].get<std::string>());
    if (!parsed) {
      fail(parsed.error());
    } else if (const auto spans = parsed->render(input["variables"]); !spans) {
      fail(spans.error());
    } else {
      std::string text;
      for (const auto& span : *spans) text += span.text;
      output = {{"text", text}};
    }
    std::cout << output.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    std::cout.flush();
  }
}
