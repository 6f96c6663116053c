// The interpreter of chat templates: 26 shapes of published templates against jinja2
// (tests/golden/make_chat_shapes.py), data that stays data, refusals by name, and hostile
// templates. jinja_random_test.py holds it to jinja2 on templates made at random.
#include "worker/model/jinja.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/temp_folder.h"

namespace allot::jinja {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

ordered_json variables(const std::string& system, const std::string& user) {
  ordered_json messages = ordered_json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", user}});
  return {{"messages", messages},
          {"tools", nullptr},
          {"documents", nullptr},
          {"add_generation_prompt", true},
          {"bos_token", "<s>"}};
}

// Returns the text, or "KIND line N: MESSAGE" with the kind's number.
std::string made(const std::string& source, const ordered_json& with = variables("", "q")) {
  const auto failed = [](const Failure& failure) {
    return std::to_string(static_cast<int>(failure.kind)) + " line " +
           std::to_string(failure.line) + ": " + failure.message;
  };
  const auto parsed = Template::parse(source);
  if (!parsed) return failed(parsed.error());
  const auto spans = parsed->render(with, {"eos_token"});
  if (!spans) return failed(spans.error());
  std::string text;
  for (const Span& span : *spans) text += span.text;
  return text;
}

TEST(Jinja, ShapesOfPublishedTemplatesAreJinjas) {
  const auto shapes =
      ordered_json::parse(readFile(ALLOT_SOURCE_DIR "/tests/golden/chat_shapes.json"));
  ASSERT_EQ(shapes.size(), 26u);
  for (const auto& shape : shapes) {
    SCOPED_TRACE(shape["name"].get<std::string>());
    for (const char* with : {"plain", "system"}) {
      const bool system = std::string(with) == "system";
      const std::string text =
          made(shape["template"], variables(system ? " Be kind. " : "", " Where is it?\n"));
      if (shape[with].is_string()) {
        EXPECT_EQ(text, shape[with].get<std::string>());
      } else {
        EXPECT_THAT(text, HasSubstr("it says: " + shape[with]["raises"].get<std::string>()));
      }
    }
  }
}

TEST(Jinja, PublishedTemplatesTakeLongPrompts) {
  const auto shapes =
      ordered_json::parse(readFile(ALLOT_SOURCE_DIR "/tests/golden/chat_shapes.json"));
  const ordered_json longest = variables(" Be kind. ", std::string(600'000, 'a') + " \n");
  for (const auto& shape : shapes) {
    const std::string text = made(shape["template"], longest);
    EXPECT_EQ(text.size() >= 600'000, shape["system"].is_string()) << shape["name"];
  }
}

TEST(Jinja, WhiteSpaceIsAsTransformersSetsIt) {
  EXPECT_EQ(made("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(made("a\n  {%+ if true %}\nb{% endif +%}\nc"), "a\n  b\nc");
  EXPECT_EQ(made("a \n {{- 1 -}} \n b {# c -#} \n d"), "a1b d");
  EXPECT_EQ(made("{ x }\r\n{{ '\\n' }}"), "{ x }\n\n");
}

TEST(Jinja, ValuesArePythons) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{ -7 % 3 }} {{ 7 - 2 * 3 }} {{ 2 > 1 }} {{ -2 + 1 }}", "2 1 True -1"},
      {"{{ [1, 'a\\'b', none, true] }} {{ {'k': (1,)} }}", "[1, \"a'b\", None, True] {'k': (1,)}"},
      {"{{ 'h\u00e9llo'[1:4] }} {{ '\u6f22\u5b57' | length }} {{ 'abc'[::-1] }}", "\u00e9ll 2 cba"},
      {"{{ '\u00c9' | lower }} {{ ' x ' | trim ~ '|' }}", "\u00e9 x|"},
      {"{{ {'a': '<\u00e9>', 'b': [1, none]} | tojson }}",
       "{\"a\": \"<\u00e9>\", \"b\": [1, null]}"},
      {"{{ {2: 'b', 1: 'a'} | dictsort }}", "[(1, 'a'), (2, 'b')]"},
      {"{{ {'a': 1} | tojson(ensure_ascii=False) }}", "{\"a\": 1}"},
      {"{{ missing }}{{ missing | default('d') }}{{ missing is defined }}", "dFalse"},
      {"{{ 'a,b,,c'.split(',') | join('+') }} {{ 'xaxbx'.split('x', 1) }}", "a+b++c ['', 'axbx']"},
      {"{{ '<{}{}>'.format('a', 1) }}", "<a1>"},
      {"{% for i in range(5) if i % 2 == 0 %}{{ loop.index }}{{ loop.last }}{% endfor %}",
       "1False2False3True"},
      {"{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"},
      {"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
      {"{% set ns = namespace(x=1) %}{% for i in [1] %}{% set ns.x = 2 %}{% endfor %}{{ ns.x }}",
       "2"},
      {"{% generation %}{{ messages[0].content }}{% endgeneration %}", "q"},
      {"{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"},
      {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"},
      {"{% set a, b = (1, 2) %}{{ b }}{{ -a }}{{ not not a }}", "2-1True"},
      {"{{ 1 < 2 }} {{ 'a' in 'abc' and 3 not in [1] }} {{ 'y' if false }}", "True True "},
  };
  for (const auto& [source, text] : cases) EXPECT_EQ(made(source), text) << source;
}

// A name is of one block, whatever is run first.
TEST(Jinja, NamesAreOfTheBlockThatSetsThem) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{% for i in [1] %}{{ bos_token }}{% endfor %}{% set bos_token = 'b' %}{{ bos_token }}",
       "b"},
      {"{% macro f() %}{{ bos_token }}|{% endmacro %}{{ f() }}{% set bos_token = 'b' %}{{ f() }}",
       "|b|"},
      {"{% for i in [1] if bos_token %}a{% endfor %}{% set bos_token = 'b' %}", ""},
      {"{% generation %}{{ bos_token }}{% endgeneration %}{% macro bos_token() %}{% endmacro %}",
       ""},
      {"{% set x %}{{ bos_token }}{% endset %}{{ x }}{% set bos_token = 'b' %}", ""},
      // It is the context's as well where it is read before, or perhaps not set.
      {"{{ bos_token }}{% for i in [1] %}{{ bos_token }}{% endfor %}{% set bos_token = 'b' %}",
       "<s><s>"},
      {"{% for i in [1] %}{{ bos_token }}{% endfor %}{% if x %}{% set bos_token = 'b' %}{% endif "
       "%}",
       "<s>"},
      {"{% for i in [1, 2] %}{% for j in [1] %}{{ bos_token }}{% endfor %}{% set bos_token = i %}"
       "{% endfor %}",
       ""},
      {"{% for i in [1, 2] %}{% for j in [1] %}{{ bos_token }}{% endfor %}{% set bos_token = i %}"
       "{% endfor %}{{ bos_token }}",
       "<s><s><s>"},
      {"{% macro f(a=b, b='b') %}{{ a }}{{ b }}{% endmacro %}{{ f() }}{{ f(b='c') }}", "bcc"},
  };
  for (const auto& [source, text] : cases) EXPECT_EQ(made(source), text) << source;
}

TEST(Jinja, DataIsFollowedThroughTheTemplate) {
  const auto parsed = Template::parse(
      "{{ '<s>' ~ messages[0].content.split('|')[1] | trim | upper | lower + '</s>' }}");
  ASSERT_TRUE(parsed);
  const auto spans = parsed->render(variables("", "a| </S> b |c"));
  ASSERT_TRUE(spans);
  ASSERT_EQ(spans->size(), 3u);
  EXPECT_EQ((*spans)[0].text, "<s>");
  EXPECT_EQ((*spans)[1].text, "</s> b");
  EXPECT_TRUE((*spans)[1].data && !(*spans)[0].data && !(*spans)[2].data);
}

TEST(Jinja, RefusesByNameAndLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n\n{{ 'a' | wordcount }}", "4 line 3: the filter wordcount"},
      {"\n{{ 'a' | nofilter\n | trim }}", "4 line 2: the filter nofilter"},
      {"{{ 'a' is\n odd }}", "4 line 2: the test odd"},
      {"{{ 'a' | trim(1, 2) }}", "4 line 1: trim with such arguments"},
      {"{{ 'a' | tojson(indent=2) }}", "4 line 1: tojson with other arguments"},
      {"{{ [2] | selectattr('x') }}", "4 line 1: a value of type generator is printed"},
      {"{{ 7 // 2 }}", "4 line 1: a division"},
      {"{{ 1 < 2 < 3 }}", "4 line 1: a chain of comparisons"},
      {"{{ x is divisibleby 3 }}", "0 line 1: \"}}\" is missing, there is \"3\""},
      {"{{ x is none if y }}", "0 line 1: \"(\" is missing, there is \"if\""},
      {"{{ 1.5 }}", "4 line 1: a number with a point"},
      {"{{ 007 }}", "4 line 1: a number beyond 64 bits, or with a zero in front"},
      {"{{ 'a'[::2] }}", "4 line 1: a slice with a step, other than [::-1]"},
      {"{{ (7)[::-1] ~ '' }}", "4 line 1: a slice of a value of type int"},
      {"{{ '\\x41' }}", "4 line 1: the escape \\x"},
      {"{{ '\u00e9' | upper }}", "4 line 1: upper case of \u00e9"},
      {"{% raw %}{{ x {% endraw %}", "0 line 1: the statement raw is not known"},
      {"{% set true = 1 %}", "0 line 1: a name that is no constant is missing"},
      {"{% for i in [1] %}\n{{ loop.cycle(1) }}{% endfor %}",
       "4 line 2: the attribute cycle of the variable loop"},
      {"{% for i in [] %}\n{% else %}{% endfor %}", "4 line 2: a for with an else"},
      {"{% else %}", "0 line 1: the statement else is not known"},
      {"{% break %}", "0 line 1: break stands outside a loop"},
      {"{% for i in [1] %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}",
       "0 line 1: break stands outside a loop"},
      {"{% include 'x' %}", "0 line 1: the statement include is not known"},
      {"{{ 'a'.zfill(3) }}", "4 line 1: the attribute zfill of a value of type str"},
      {"{{ {}.update({}) }}", "4 line 1: the attribute update of a value of type dict"},
      {"{{ lipsum() }}", "4 line 1: the name lipsum"},
      {"{{ nothing() }}", "1 line 1: nothing is not defined"},
      {"{{ nothing.deeper }}", "1 line 1: nothing is not defined"},
      {"{{ messages.append(1) }}", "4 line 1: the attribute append of a value of type list"},
      {"{{ ''.__class__ }}", "4 line 1: the attribute __class__"},
      {"{{ eos_token }}", "4 line 1: eos_token, which the model's files do not name"},
      {"{{ raise_exception('no') }}", "3 line 1: it says: no"},
      {"{{ 'a' + 1 }}", "2 line 1: str + int"},
      {"{% macro f(a=nothing.b) %}{% endmacro %}{{ f(b=1) }}",
       "2 line 1: the macro f has other parameters"},
      {"{{ 'a' * 2 }}", "4 line 1: a multiple of a value of type str"},
      {"{{ 9223372036854775807 }}", "4 line 1: a number beyond 64 bits"},
      {"{{ 999999999999999999 * 999 }}", "4 line 1: an integer beyond 64 bits"},
      {"{{ range(576460752303423488 * -16) }}", "4 line 1: range with such a number"},
      {"{{ '{x}'.format(1) }}", "4 line 1: format with such arguments"},
      {"{{ strftime_now('%d %-f') }}", "4 line 1: strftime_now with the format %d %-f"},
      {"{{ strftime_now('%%z %z') }}", "4 line 1: strftime_now with the format %%z %z"},
      {"{% for loop in [1] %}{% endfor %}", "0 line 1: the variable loop is set"},
      {"{% for i in [1] %}{% set a, loop = 1, 2 %}{% endfor %}", "the variable loop is set"},
      {"{% macro f(a, a) %}{% endmacro %}", "0 line 1: the parameter a is there twice"},
      {"{% set ns = namespace() %}{% for i in [1] %}{% macro f() %}{{ i }}{% endmacro %}"
       "{% set ns.f = f %}{% endfor %}{{ ns.f() }}",
       "4 line 1: the macro f behind its block"},
      {"{% for i in [] recursive %}{% endfor %}",
       "0 line 1: \"%}\" is missing, there is \"recursive\""},
      {"{% if x %}", "0 line 1: the tag \"endif\" is missing"},
  };
  for (const auto& [source, message] : cases)
    EXPECT_THAT(made(source), HasSubstr(message)) << source;
  // Whether braces are the template's or the question's.
  EXPECT_THAT(made("{{ messages[0].content.format('q') }}", variables("", "{} {x!r}")),
              HasSubstr("4 line 1: format with other fields than {}"));
}

// Each ends soon, with one sentence.
TEST(Jinja, HostileTemplatesAreBounded) {
  const auto repeated = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  for (const std::string& source : {
           std::string(
               "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
           std::string("{% set ns = namespace(s='ab') %}{% for i in range(99) %}"
                       "{% set ns.s = ns.s + ns.s %}{% endfor %}"),
           std::string("{% set ns = namespace(l=[]) %}{% for i in range(99) %}"
                       "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}"),
           std::string("{% set ns = namespace(l=[]) %}{% for i in range(50) %}"
                       "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}"),
           std::string("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"),
           std::string("{% set ns = namespace(d={}) %}{% for i in range(9999) %}"
                       "{% set ns.d = {'a': ns.d.items} %}{% endfor %}"),
           std::string("{% set ns = namespace(s=' ') %}{% for i in range(22) %}"
                       "{% set ns.s = ns.s + ns.s %}{% endfor %}"
                       "{% for i in range(99999) %}{% set s = ns.s.strip() %}{% endfor %}"),
           std::string("{% set ns = namespace(s='{}') %}{% for i in range(18) %}"
                       "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s.replace('{}', ns.s) }}"),
           "{{ " + repeated("(", 100000) + repeated(")", 100000) + " }}",
           "{{ " + repeated("1 + ", 100000) + "1 }}",
           "{{ " + repeated("not ", 100000) + "1 }}",
           "{{ x" + repeated(".a", 100000) + " }}",
           repeated("{% if a %}", 100000),
           repeated("{{ x }}", 150000),
       }) {
    EXPECT_EQ(made(source).substr(0, 7), "5 line ") << source.substr(0, 90);
  }
  // What takes long, or much memory, counts for more than a step.
  const auto loop = [](int count, const std::string& part) {
    return "{% for i in range(" + std::to_string(count) + ") %}{% set x = messages[0].content" +
           part + " %}{% endfor %}";
  };
  const ordered_json large = variables("", repeated("\u00e9", 20'000));
  for (const auto& [part, count] : {std::pair{" | list", 30},
                                    {".strip('abc')", 200},
                                    {" | lower", 40},
                                    {".split('\u00e9')", 30}}) {
    EXPECT_EQ(made(loop(2, part), large), "") << part;
    EXPECT_THAT(made(loop(count, part), large), HasSubstr("too many steps")) << part;
  }
  // Of a variable loop that outlives its loop, none keeps the one before.
  EXPECT_EQ(made("{% set ns = namespace() %}{% for i in range(9999) %}{% set before = ns.l %}"
                 "{% for j in [1] %}{% set ns.l = loop %}{% endfor %}{% endfor %}"),
            "");
  // A namespace that holds itself, and a macro that its own scope holds, are released.
  EXPECT_EQ(made("{% set ns = namespace() %}{% set ns.a = ns %}{% macro f() %}{% endmacro %}"), "");
}

}  // namespace
}  // namespace allot::jinja
